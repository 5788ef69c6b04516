import t from 'tap'
import { resolveSettings } from '../../lib/config/settings.ts'
import { systemClock } from '../../lib/core/clock.ts'
import { SharedPacks } from '../../lib/dependencies/dependencies.ts'
import { createInstallers, type GatewayContext, installedRuntimes } from '../../lib/gateway/compose.ts'
import { makeTree } from '../helpers/tree.ts'

t.test(
  '[dependencies/install.6] each language has its installer; one that is off warns of missing packages again',
  async t => {
    const { root, cleanup } = makeTree()
    t.teardown(cleanup)
    const { settings } = resolveSettings({ options: { functionsRoot: root, autoRequirements: false }, cwd: '/' })
    const packs = new SharedPacks(root)
    const installers = createInstallers({
      settings,
      clock: systemClock,
      hostEnv: {},
      packs,
      journal: { log: () => {} },
    } as unknown as GatewayContext)
    t.same(installers.map(({ runtime }) => runtime).sort(), ['node', 'php', 'python'])
    t.notOk(installedRuntimes(settings).has('python'))
    t.ok(installedRuntimes({ ...settings, autoRequirements: true }).has('python'))
    t.same([...installedRuntimes({ ...settings, autoNodeDeps: false, autoPhpDeps: false })], [])
    t.same([...installedRuntimes(settings)], ['node', 'php'])
  },
)
