import t from 'tap'
import { AccessState, SWITCHES } from '../../lib/control/access.ts'
import { resolveSettings } from '../../lib/config/settings.ts'

const make = (options: Record<string, unknown> = {}) =>
  new AccessState(resolveSettings({ options: { functionsRoot: '/r', ...options }, cwd: '/' }).settings)

t.test('[control/ui-state.1, control/ui-state.2] switches lie over the settings until they are taken away', t => {
  const access = make({ consoleWriteEnabled: true, adminToken: 'a' })
  t.match(access.flags, { consoleWriteEnabled: true, consoleLocalOnly: true, uiEnabled: false, adminToken: 'a' })
  t.match(access.preview({ uiEnabled: true }), { uiEnabled: true, consoleWriteEnabled: true })
  t.equal(access.flags.uiEnabled, false, 'a preview changes nothing')
  access.apply({ uiEnabled: true })
  access.apply({ consoleWriteEnabled: false })
  t.match(access.flags, { uiEnabled: true, consoleWriteEnabled: false, adminToken: 'a' }, 'one beside the other')
  access.apply(null)
  t.match(access.flags, { uiEnabled: false, consoleWriteEnabled: true })
  t.same(Object.keys(SWITCHES), ['ui_enabled', 'api_enabled', 'write_enabled', 'local_only', 'login_api_enabled'])
  t.end()
})

t.test('[control/ui-state.4] what counts as letting more in', t => {
  const access = make({ consoleLoginApi: true })
  const cases: [changes: object, isLoosening: boolean][] = [
    [{}, false],
    [{ consoleLocalOnly: false }, true],
    [{ consoleLoginApi: false }, true],
    [{ consoleWriteEnabled: true }, true],
    [{ uiEnabled: true }, false],
    [{ consoleApiEnabled: false }, false],
    [{ uiEnabled: true, consoleLocalOnly: false }, true],
  ]
  for (const [changes, isLoosening] of cases)
    t.equal(access.isLoosening(access.preview(changes)), isLoosening, JSON.stringify(changes))
  const open = make({ consoleLocalOnly: false, consoleWriteEnabled: true })
  open.apply({ consoleLocalOnly: true, consoleWriteEnabled: false })
  t.equal(open.isLoosening(open.preview(null)), true, 'the way back to the settings')
  t.end()
})

t.test(
  '[control/ui-state.1, control/ui-state.5] logging in needs something to log in with; off by a setting is another thing',
  t => {
    t.equal(make().canLogIn, false)
    t.equal(make({ uiEnabled: true }).canLogIn, false)
    t.equal(make({ adminToken: 'a' }).canLogIn, false)
    t.equal(make({ uiEnabled: true, adminToken: 'a' }).canLogIn, true)
    const hash = `scrypt:16384:8:1:${'ab'.repeat(16)}:${'cd'.repeat(32)}`
    const access = make({ consoleLoginPasswordHash: hash })
    t.equal(access.canLogIn, false)
    access.apply({ uiEnabled: true })
    t.equal(access.canLogIn, true)
    t.equal(access.flags.apiOffByState, false)
    access.apply({ consoleApiEnabled: false })
    t.equal(access.flags.apiOffByState, true)
    t.equal(make({ consoleApiEnabled: false }).flags.apiOffByState, false)
    t.end()
  },
)

t.test('[control/access.15] FN_ISOLATION=user requires a login, and no switch turns that off', t => {
  const access = make({ isolation: 'user', adminToken: 'a' })
  t.equal(access.flags.consoleLoginApi, true)
  access.apply({ consoleLoginApi: false })
  t.equal(access.flags.consoleLoginApi, true)
  access.apply(null)
  t.equal(access.flags.consoleLoginApi, true)
  t.end()
})
