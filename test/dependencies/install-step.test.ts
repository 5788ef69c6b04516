import t from 'tap'
import { installError, passingError } from '../../lib/dependencies/install-step.ts'

t.test('[dependencies/install.9] a failure tells its file and what mends it', async t => {
  const cause = new Error('of the tool')
  const lasting = installError('no such package', { file: 'a/package.json', line: 3 }, 'correct its name', cause)
  t.match(lasting, { code: 'LOAD_FAILED', message: 'install failed: no such package', cause })
  t.same(lasting.detail, { file: 'a/package.json', line: 3, hint: 'correct its name' })
  t.same(installError('x', { file: 'f' }).detail, { file: 'f' })
})

t.test('[dependencies/install.9] a failure that passes names no file', async t => {
  t.same(passingError('no answer', 'is the registry up?').detail, { hint: 'is the registry up?' })
  t.match(passingError('no answer'), { code: 'LOAD_FAILED', message: 'install failed: no answer' })
})
