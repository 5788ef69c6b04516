/** What installs packages: the step of each language, with its settings. Owner: §2.16, page dependencies/install. */

import type { Settings } from './config/settings.ts'
import type { Clock } from './core/clock.ts'
import { toPythonHostEnv } from './core/host.ts'
import { Installer } from './dependencies/install.ts'
import type { InstallStep } from './dependencies/install-step.ts'
import { createPhpStep } from './dependencies/php.ts'
import { createNodeStep } from './dependencies/node.ts'
import { createPythonStep } from './dependencies/python.ts'
import { PythonImports } from './dependencies/python-imports.ts'
import type { SharedPacks } from './dependencies/shared-packs.ts'
import { createFileReader } from './files/function-file.ts'
import type { Journal } from './observe/journal.ts'
import { findTool, toInstallHint } from './runtime/binaries.ts'
import { runtimeFile } from './runtime/package-files.ts'

interface InstallPartsOptions {
  settings: Settings
  clock: Clock
  /** Environment of this process. */
  hostEnv: Readonly<Record<string, string | undefined>>
  packs: SharedPacks
  journal: Pick<Journal, 'log'>
}

export function createInstallers(options: InstallPartsOptions): Installer[] {
  const { settings, clock, packs } = options
  const { functionsRoot, isolation } = settings
  const isPrivate = isolation === 'user'
  return createSteps(options).map(
    step => new Installer(step, { functionsRoot, clock, isPrivate, packsOf: fn => packs.require(fn) }),
  )
}

/** A language's step is made of the settings that are its own; each file says what they are. */
function createSteps(options: InstallPartsOptions): InstallStep[] {
  return [createPython(options), createNode(options), createPhp(options)]
}

function createPython({ settings, clock, hostEnv, journal }: InstallPartsOptions): InstallStep {
  const { functionsRoot } = settings
  const imports = new PythonImports({ clock, script: runtimeFile('python/infer.py'), env: toPythonHostEnv(hostEnv) })
  const findUv = () => findTool({ tool: 'uv', binaries: settings.binaries, path: hostEnv.PATH ?? '' })
  return createPythonStep({ settings, functionsRoot, imports, findUv, ...toNotes(journal) })
}

function createNode({ settings, hostEnv, journal }: InstallPartsOptions): InstallStep {
  return createNodeStep({
    functionsRoot: settings.functionsRoot,
    isOn: settings.autoNodeDeps,
    infers: settings.autoInferNodeDeps,
    backend: settings.nodeInferBackend,
    writesManifest: settings.autoInferWriteManifest,
    isStrict: settings.autoInferStrict,
    isAhead: settings.preinstallNodeDepsOnStart,
    concurrency: settings.preinstallNodeDepsConcurrency,
    allowSources: settings.nodePackageSources,
    readFile: createFileReader(settings),
    importsScript: runtimeFile('node/find-imports.mjs'),
    findNpm: () => findTool({ tool: 'npm', binaries: settings.binaries, path: hostEnv.PATH ?? '' }),
    ...toNotes(journal),
  })
}

function toNotes(journal: InstallPartsOptions['journal']) {
  return {
    onNote: (text: string) => journal.log('warn', text),
    onInfer: (text: string) => journal.log('info', text),
  }
}

function createPhp({ settings, hostEnv, journal }: InstallPartsOptions): InstallStep {
  const configured = settings.binaries.composer
  return createPhpStep({
    functionsRoot: settings.functionsRoot,
    isOn: settings.autoPhpDeps,
    isAhead: settings.preinstallPhpDepsOnStart,
    allowSources: settings.phpPackageSources,
    readFile: createFileReader(settings),
    findComposer: () => findTool({ tool: 'composer', binaries: settings.binaries, path: hostEnv.PATH ?? '' }),
    composerProblem:
      configured === undefined ? 'composer is not on PATH' : `FN_COMPOSER_BIN is ${configured}, which cannot be run`,
    composerHint: toInstallHint('composer'),
    ...toNotes(journal),
  })
}

/** Runtimes whose packages the gateway installs: what is missing there is no warning but work. */
export function installedRuntimes({ autoRequirements, autoNodeDeps, autoPhpDeps }: Settings): ReadonlySet<string> {
  const isOn = { python: autoRequirements, node: autoNodeDeps, php: autoPhpDeps }
  return new Set(Object.entries(isOn).flatMap(([runtime, on]) => (on ? runtime : [])))
}
