import t from 'tap'
import { resolveSettings } from '../../lib/config/settings.ts'
import { SettingsError } from '../../lib/gateway/options.ts'

t.test('[gateway/gateway.1] the error of wrong settings has each problem, and all of them in its message', async t => {
  const { problems } = resolveSettings({ options: { port: 'many', namespaceDepth: 9 }, cwd: '/' })
  const error = new SettingsError(problems)
  t.ok(error instanceof Error)
  t.match(error, {
    name: 'SettingsError',
    problems,
    message: /options\.port must[^\n]*\n[^\n]*options\.namespaceDepth/,
  })
})
