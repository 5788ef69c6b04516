/** The runtimes of a gateway and the builds that two of them need, telling its journal. Owner: §1, §2.16. */

import { readPowers } from './config/setting-checks.ts'
import type { Settings } from './config/settings.ts'
import type { FunctionVersion } from './core/catalog.ts'
import type { Clock } from './core/clock.ts'
import { type Builder, toResultText } from './dependencies/build.ts'
import { createBuilds } from './dependencies/resolve.ts'
import { runTool, ToolOwner } from './dependencies/run-tool.ts'
import { Dependencies } from './dependencies/dependencies.ts'
import type { Builds, BuildsOptions } from './dependencies/resolve.ts'
import type { SharedPacks } from './dependencies/shared-packs.ts'
import { findChange, type LoadedFiles } from './discovery/loaded-files.ts'
import type { Snapshot } from './discovery/snapshot.ts'
import { createInstallers } from './install-parts.ts'
import { toStaticContext } from './invocation/event.ts'
import { createFileReader } from './files/function-file.ts'
import type { Journal } from './observe/journal.ts'
import { findProgram } from './runtime/binaries.ts'
import { packageFile, runtimeFile } from './runtime/package-files.ts'
import { Runtimes } from './runtime/runtimes.ts'

/** Milliseconds for which a program that nobody waits for may run. */
const ASIDE_TIMEOUT_MS = 120_000

interface RuntimePartsOptions {
  settings: Settings
  clock: Clock
  /** Environment of this process. */
  hostEnv: Readonly<Record<string, string | undefined>>
  /** True starts nothing. */
  inspect: boolean
  journal: Journal
  packs: SharedPacks
  /** null where nobody edits the files. */
  loaded: LoadedFiles | null
  /** The tree that serves. */
  snapshot: () => Snapshot
}

interface RuntimeParts {
  builds: Builds
  dependencies: Dependencies
  runtimes: Runtimes
}

export function createRuntimeParts(options: RuntimePartsOptions): RuntimeParts {
  const installers = createInstallers(options)
  // Builds prepare functions for runtimes, which know the users.
  const toolUserOf = (key: string) => runtimes.toolUserOf(key)
  const builds = createJournalledBuilds({ ...options, toolUserOf }, installers)
  const prepared: ReadonlySet<string> = new Set(['go', 'rust', ...installers.map(({ runtime }) => runtime)])
  const { settings, clock, packs } = options
  const dependencies = new Dependencies({ functionsRoot: settings.functionsRoot, clock, builds, packs })
  const runtimes = createJournalledRuntimes(options, builds, prepared)
  return { builds, dependencies, runtimes }
}

function createJournalledBuilds(
  options: RuntimePartsOptions & Pick<BuildsOptions, 'toolUserOf'>,
  installers: readonly Builder[],
): Builds {
  const { settings, clock, hostEnv, journal, toolUserOf } = options
  const { functionsRoot, binaries, depsWaitMs, goBuildTimeoutSeconds, rustBuildTimeoutSeconds } = settings
  return createBuilds({
    clock,
    functionsRoot,
    isPrivate: settings.isolation === 'user',
    toolOwner: options.inspect || settings.isolation === 'user' ? null : findToolOwner(options),
    toolUserOf,
    readFile: createFileReader(settings),
    nice: settings.workerNice,
    goBuildTimeoutSeconds,
    rustBuildTimeoutSeconds,
    waitMs: depsWaitMs,
    hostEnv,
    installers,
    workerFolder: runtime => runtimeFile(`${runtime}/worker`),
    changeOf: changesOf(options),
    findProgram: runtime => findProgram(runtime, binaries, hostEnv.PATH ?? ''),
    onBegin: (fn, action) => journal.buildBegan(fn, action),
    onEnd: (fn, action) => journal.buildEnded(fn, action),
    onBuilt: ({ fn, durationMs, made }) => journal.log('info', toResultText(fn.key, durationMs, made)),
    onFailure: (fn, error, others) => journal.failure(fn, error, others),
  })
}

/** Functions with users of their own share packages that no user may write; there nothing belongs to the owner of the root. */
function findToolOwner({ settings, journal }: RuntimePartsOptions): ToolOwner | null {
  return ToolOwner.find({
    functionsRoot: settings.functionsRoot,
    powers: readPowers(),
    reached: [process.execPath, packageFile('package.json')],
    onRefused: why => journal.log('warn', why),
  })
}

function createJournalledRuntimes(
  options: RuntimePartsOptions,
  builds: Builds,
  prepared: ReadonlySet<string>,
): Runtimes {
  const { settings, clock, hostEnv, inspect, journal, packs, loaded } = options
  return new Runtimes({
    settings,
    clock,
    hostEnv,
    inspect,
    preparerOf: name => (prepared.has(name) ? builds : null),
    runAside: async run => {
      const { code, output, problem } = await runTool({ ...run, timeoutMs: ASIDE_TIMEOUT_MS, isPlain: false }, clock)
      if (code !== 0) journal.log('debug', `${run.args[0]}: ${problem ?? output.trim() ?? 'ended in time'}`)
    },
    toContext: fn => toStaticContext(fn),
    changeOf: changesOf(options),
    toPackDirs: fn => packs.dirsOf(fn),
    onLog: (fn, stream, text) => journal.output(fn, stream, journal.secrets.hide(fn, text)),
    ...(loaded && { onFiles: (fn, files) => loaded.report(fn, files) }),
    onFailure: (fn, error) => journal.failure(fn, journal.secrets.hideIn(fn, error)),
    onStandIn: ({ entryFile }) =>
      journal.log('warn', `${entryFile}: the previous version keeps serving until this is fixed`),
    onFixed: ({ entryFile }) => journal.log('info', `${entryFile}: fixed, the new version serves`),
    loadsChanged: settings.hotReload,
    onEvent: ({ kind, runtime, index, text }) =>
      journal.log(kind === 'up' ? 'debug' : 'warn', `${runtime}${index === 0 ? '' : ` daemon ${index}`}: ${text}`),
  })
}

/** What a function's files are on disk, where that is not what was discovered or loaded. */
function changesOf({ snapshot, loaded }: RuntimePartsOptions): (fn: FunctionVersion) => string | null {
  return fn => [findChange(snapshot(), fn), loaded?.changesOf(fn.key)].filter(Boolean).join('\n') || null
}
