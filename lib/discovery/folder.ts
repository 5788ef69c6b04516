/** What is known of each folder by itself: its config files, its handlers and helpers. Owner: §2.2, §2.3, §2.7, page discovery/layouts. */

import { isProblem, type Parsed } from '../config/fields.ts'
import type { FunctionConfig, PolicyDefaults, RouteEntry } from '../config/function-config.ts'
import { type DeclaredEnv, mergeDeclared } from '../config/function-env.ts'
import type { Settings } from '../config/settings.ts'
import type { Warning } from '../core/errors.ts'
import { getOrMake } from '../core/collections.ts'
import type { RuntimeName } from '../core/identity.ts'
import { pathWarning, toChild } from './disk.ts'
import { FileSorter, type FolderFiles, type FolderView, sameView } from './entry-file.ts'
import { sourcesBelow } from './functions.ts'
import { CONFIG_FILES, isScriptFolder, privateReason } from './layouts.ts'
import { type ConfigKind, type ConfigText, type DirNode, type FileEntry, NO_TEXTS, PARSERS } from './snapshot.ts'

export interface DiscoverOptions extends Pick<Settings, 'runtimes' | 'namespaceDepth' | 'forceUrl'> {
  defaults: PolicyDefaults
}

/** A file that functions may load, and its folder. */
export interface Helper {
  folder: string
  file: FileEntry
}

/** The facts about folders that the walk and the handlers ask for. */
export class FolderFacts {
  readonly options: DiscoverOptions
  readonly enabled: ReadonlySet<RuntimeName>
  readonly #configs = new ConfigReader()
  #files = new WeakMap<DirNode, { view: FolderView; files: FolderFiles }>()
  /** By folder: its helper files for the functions around it, as they were found for a view. */
  readonly #helpers = new WeakMap<DirNode, { view: FolderView; found: readonly Helper[] }>()

  constructor(options: DiscoverOptions) {
    this.options = options
    this.enabled = new Set(options.runtimes)
  }

  configs(node: DirNode): FolderConfigs {
    return this.#configs.read(node)
  }

  files(node: DirNode, view: FolderView): FolderFiles {
    const known = this.#files.get(node)
    if (known !== undefined && sameView(known.view, view)) return known.files
    const files = new FileSorter(node, this.configs(node).config, view, this.enabled).sort()
    this.#files.set(node, { view, files })
    return files
  }

  /** Forgets the files of folders: they are asked for several times in one walk, and seldom after it. */
  endWalk(): void {
    this.#files = new WeakMap()
  }

  /** Where the folders of a folder stand. */
  viewBelow(node: DirNode, view: FolderView): FolderView {
    const { kind } = this.files(node, view)
    if (kind === 'group') return { ...view, group: node.name as RuntimeName }
    // The functions root never contains other functions as their function, even when it is one itself.
    return kind === 'function' && node.path !== '' ? { ...view, isInsideFunction: true } : view
  }

  /** Why a folder publishes nothing, whatever its files are called; null when it may. */
  closed({ skipped, name }: DirNode): string | null {
    return skipped ?? privateReason(name)
  }

  /** True when the folder itself holds a handler. */
  hasHandler(node: DirNode, view: FolderView): boolean {
    const { entries, routes } = this.files(node, view)
    return entries.length > 0 || routes.length > 0 || this.configs(node).config?.entrypoint !== undefined
  }

  /** True when the folder or one below it holds a handler. */
  hasHandlerBelow(node: DirNode, view: FolderView): boolean {
    if (this.closed(node) !== null) return false
    if (this.hasHandler(node, view)) return true
    const viewBelow = this.viewBelow(node, view)
    return node.dirs.some(dir => this.hasHandlerBelow(dir, viewBelow))
  }

  /**
   * Helper files whose change concerns the functions of a folder and below: its own, those of its private folders, and
   * those of folders that hold no handler themselves, which exist for the handlers around them.
   */
  helpers(node: DirNode, view: FolderView): readonly Helper[] {
    const helpers = this.files(node, view).helpers.map(file => ({ folder: node.path, file }))
    if (node.dirs.length === 0) return helpers
    const viewBelow = this.viewBelow(node, view)
    for (const dir of node.dirs) helpers.push(...this.#helpersOf(dir, viewBelow))
    return helpers
  }

  /** The helper files that a folder has for the functions around it. */
  #helpersOf(dir: DirNode, view: FolderView): readonly Helper[] {
    if (isScriptFolder(dir.path)) return []
    const known = this.#helpers.get(dir)
    if (known !== undefined && sameView(known.view, view)) return known.found
    const own = () => (this.hasHandler(dir, view) ? [] : this.helpers(dir, view))
    const found = this.closed(dir) === null ? own() : sourcesBelow(dir)
    this.#helpers.set(dir, { view, found })
    return found
  }
}

/** The config files of one folder, parsed. Equal texts give the same objects, so they can be compared by identity. */
export interface FolderConfigs {
  /** null without a file. */
  config: FunctionConfig | null
  routes: readonly RouteEntry[]
  env: DeclaredEnv
  /** Why calls of the folder's functions are refused: without the values a check of a key could let everyone in. */
  envProblem: string | null
  warnings: readonly Warning[]
}

const NO_ENV: DeclaredEnv = Object.freeze(Object.create(null))
const NO_CONFIGS: FolderConfigs = { config: null, routes: [], env: NO_ENV, envProblem: null, warnings: [] }

type ParsedKind<Kind extends ConfigKind> = ReturnType<(typeof PARSERS)[Kind]>

/** Parses config files and remembers the outcome for as long as their texts live. */
export class ConfigReader {
  readonly #parsed = new WeakMap<ConfigText, Parsed<unknown>>()

  read(node: DirNode): FolderConfigs {
    if (node.texts === NO_TEXTS) return NO_CONFIGS
    const config = this.#read(node, 'config')
    const routes = this.#read(node, 'routes')
    const env = this.#read(node, 'env')
    const dotenv = this.#read(node, 'dotenv')
    const warnings = [config, routes, env, dotenv].flatMap(parsed => parsed?.warnings ?? [])
    const { env: declared, problem: envProblem } = env?.value ?? { env: NO_ENV, problem: null }
    if (envProblem !== null) {
      const text = 'cannot be used: calls of the functions in its folder are refused with 503'
      warnings.push(pathWarning('CONFIG_CLOSED', toChild(node.path, CONFIG_FILES.env), text, 'Fix the file.'))
    }
    return {
      config: config?.value ?? null,
      routes: routes?.value ?? [],
      env: dotenv === null ? declared : mergeDeclared(dotenv.value, declared),
      envProblem,
      warnings,
    }
  }

  #read<Kind extends ConfigKind>(node: DirNode, kind: Kind): ParsedKind<Kind> | null {
    const text = node.texts[kind]
    if (text === null) return null
    const parse = () => parseKept(text, toChild(node.path, CONFIG_FILES[kind]), PARSERS[kind])
    // One text object belongs to one file, hence to one kind.
    return getOrMake(this.#parsed, text, parse) as ParsedKind<Kind>
  }
}

/** A text with something wrong changes nothing while an earlier one was right: the function keeps its last good policy. */
function parseKept(
  { text, lastGood }: ConfigText,
  label: string,
  parse: (text: string | null, label: string) => Parsed<unknown>,
): Parsed<unknown> {
  const parsed = parse(text, label)
  if (lastGood === null || (text !== null && !parsed.warnings.some(isProblem))) return parsed
  const kept = pathWarning('CONFIG_KEPT', label, 'is not used: its last good version stays in force', 'Fix the file.')
  return { value: parse(lastGood, label).value, warnings: [...parsed.warnings, kept] }
}
