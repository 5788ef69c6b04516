import t from 'tap'
import { systemClock } from '../../lib/core/clock.ts'
import { readGatewayInputs, SettingsError } from '../../lib/gateway/options.ts'
import { makeTree } from '../helpers/tree.ts'

t.test(
  '[gateway/gateway.1] options are settings; nothing of the process or the project is read that is not asked for',
  async t => {
    const { root, cleanup } = makeTree({ 'fngw.json': { json: { port: 7001 } }, '.env': 'GREETING=hello' })
    t.teardown(cleanup)
    const { resolved, host } = readGatewayInputs({ functionsRoot: root, cwd: root, port: 7000 })
    t.match(resolved.settings, { functionsRoot: root, port: 7000, hotReload: false })
    t.match(host, { clock: systemClock, inspect: false, envDir: null })
    t.same(host.outerEnv(), { defaults: {}, process: {} })
    t.equal(host.hostEnv.PATH, process.env.PATH, 'programs are looked for where the process looks')
  },
)

t.test('[gateway/gateway.1] a project brings its file and its env files; variables and defaults are given', async t => {
  const { root, cleanup } = makeTree({ 'fngw.json': { json: { 'functions-dir': '.' } }, '.env': 'GREETING=hello' })
  t.teardown(cleanup)
  const { resolved, host } = readGatewayInputs({
    project: { explicit: null },
    cwd: root,
    env: { FN_PORT: '7002' },
    defaults: { hotReload: true },
  })
  t.match(resolved.settings, { port: 7002, hotReload: true })
  t.match(resolved.sources.port, { source: 'env' })
  t.equal(host.envDir, root)
  t.equal(host.hostEnv.FN_PORT, '7002')
  t.same(host.outerEnv(), { defaults: { GREETING: 'hello' }, process: { FN_PORT: '7002' } })
})

t.test('[gateway/gateway.1] everything wrong is said at once: values, and a root that is no folder', async t => {
  const { root, cleanup } = makeTree({ file: 'no folder' })
  t.teardown(cleanup)
  const read = () => readGatewayInputs({ functionsRoot: `${root}/file`, port: -1, namespaceDepth: 9 } as never)
  const error = t.throws(read, SettingsError) as unknown as SettingsError
  t.match(error.message, /port.*namespaceDepth.*file/s)
})
