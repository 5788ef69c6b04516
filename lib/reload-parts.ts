/** What reads the tree of a gateway, and what watches the files it is read from. Owner: §1. */

import { toPolicyDefaults } from './config/policy-layers.ts'
import { CatalogLoader } from './catalog-loader.ts'
import { toCatalogSteps } from './catalog-steps.ts'
import { ENV_FILES } from './config/project-file.ts'
import type { ResolvedSettings, Settings } from './config/settings.ts'
import type { EndpointPath } from './control/endpoint-table.ts'
import { watchEnvFiles } from './discovery/outside-watcher.ts'
import type { LoadedFiles } from './discovery/loaded-files.ts'
import { type Watcher, type WatchOptions, watchTree } from './discovery/watch.ts'
import { createFileReader } from './files/function-file.ts'
import type { Host } from './gateway-inputs.ts'
import { DocsPage } from './http/docs-page.ts'
import type { SchemaStore } from './validation/schema-store.ts'
import type { Journal } from './observe/journal.ts'
import type { Metrics } from './observe/metrics.ts'
import { Reloader, type ReloaderOptions } from './reloader.ts'

interface LoaderOptions extends Pick<ResolvedSettings, 'settings'>, Pick<Host, 'clock' | 'outerEnv'> {
  /** Null where nobody edits the files. */
  loaded: LoadedFiles | null
  /** Paths of the control plane, for the OpenAPI document. */
  controlPaths: readonly EndpointPath[]
  schemas: SchemaStore
}

export function createCatalogLoader({
  settings,
  clock,
  outerEnv,
  loaded,
  controlPaths,
  schemas,
}: LoaderOptions): CatalogLoader {
  const docs = new DocsPage(settings.publicBaseUrl)
  return new CatalogLoader({
    rootPath: settings.functionsRoot,
    runtimes: settings.runtimes,
    namespaceDepth: settings.namespaceDepth,
    forceUrl: settings.forceUrl,
    ...(loaded && { revisions: () => loaded.revisions }),
    checksSources: !settings.production,
    readFile: createFileReader(settings),
    loadsChanged: settings.hotReload,
    defaults: toPolicyDefaults(settings),
    now: () => clock.wall(),
    outerEnv,
    schemas,
    steps: (discovery, routes) => toCatalogSteps(settings, clock, discovery, routes, docs, schemas, controlPaths),
  })
}

interface ProjectWatchOptions extends Pick<Host, 'clock' | 'envDir'>, Pick<WatchOptions, 'onChange' | 'snapshot'> {
  functionsRoot: string
  journal: Pick<Journal, 'warn'>
  loaded: LoadedFiles | null
}

/** Watches the tree, and the project's env files, which lie beside it: a change of those asks for a reload without paths. */
export function watchProject(options: ProjectWatchOptions): Watcher {
  const { functionsRoot, clock, envDir, journal, onChange, snapshot, loaded } = options
  const onWarning: WatchOptions['onWarning'] = warning => journal.warn(warning)
  const tree = watchTree({ rootPath: functionsRoot, onChange, onWarning, clock, snapshot, loaded })
  if (envDir === null) return tree
  const closeEnv = watchEnvFiles({
    clock,
    folder: envDir,
    names: ENV_FILES,
    onChange: async () => onChange(new Set()),
  })
  return {
    ready: tree.ready,
    close: () => {
      tree.close()
      closeEnv()
    },
  }
}

interface ReloaderPartsOptions extends Omit<ProjectWatchOptions, 'functionsRoot' | 'onChange' | 'journal'> {
  settings: Pick<Settings, 'functionsRoot'>
  journal: Pick<Journal, 'warn' | 'log'>
  metrics: Pick<Metrics, 'reload'>
  load: ReloaderOptions['load']
}

/** Reads the tree again when it is asked for or a file changes. */
export function createReloader({ settings, metrics, load, ...watched }: ReloaderPartsOptions): Reloader {
  const { clock, journal } = watched
  const { functionsRoot } = settings
  return new Reloader({
    clock,
    load,
    watch: onChange => watchProject({ ...watched, functionsRoot, onChange }),
    onFailure: error => {
      metrics.reload('failed')
      journal.log('error', `reload failed: ${String(error)}`)
    },
  })
}
