/** The config files of a folder, parsed once per text. Owner: §2.7, page config/function-config. */

import { closedConfig, type FunctionConfig, parseFunctionConfig } from '../config/function-config.ts'
import { parseDotenv } from '../config/dotenv.ts'
import { mergeDeclared, toDeclared } from '../config/env-layers.ts'
import { type Finding, toWarnings } from '../config/findings.ts'
import { type DeclaredEnv, parseFunctionEnv } from '../config/function-env.ts'
import { parseRoutesFile, type RouteEntry } from '../config/routes-file.ts'
import type { Warning } from '../core/errors.ts'
import { pathWarning } from './disk.ts'
import { CONFIG_FILES } from './file-name.ts'
import type { ConfigKind, ConfigText, DirNode, SnapshotOptions } from './snapshot.ts'
import { toChild } from './tree-path.ts'

/** What the config files of one folder say. Equal texts give the same objects, so they can be compared by identity. */
export interface FolderConfigs {
  /** null without a file. */
  config: FunctionConfig | null
  routes: readonly RouteEntry[]
  env: DeclaredEnv
  /** Why calls of the folder's functions are refused: without the values a check of a key could let everyone in. */
  envProblem: string | null
  warnings: readonly Warning[]
}

interface Parsed<T> {
  value: T
  warnings: readonly Warning[]
}

const NO_ENV: DeclaredEnv = Object.freeze(Object.create(null))
const NO_CONFIGS: FolderConfigs = { config: null, routes: [], env: NO_ENV, envProblem: null, warnings: [] }

/** Parses config files and remembers the outcome for as long as their texts live. */
export class ConfigReader {
  readonly #parsed = new WeakMap<ConfigText, Parsed<unknown>>()

  read(node: DirNode): FolderConfigs {
    const { config, routes, env, dotenv } = node.texts
    if (config === null && routes === null && env === null && dotenv === null) return NO_CONFIGS
    const parsedConfig = this.#read(node, 'config', config, parseConfig)
    const parsedRoutes = this.#read(node, 'routes', routes, parseRoutes)
    const parsedEnv = this.#read(node, 'env', env, parseEnv)
    const parsedDotenv = this.#read(node, 'dotenv', dotenv, parseDotenvFile)
    const warnings = [parsedConfig, parsedRoutes, parsedEnv, parsedDotenv].flatMap(parsed => parsed?.warnings ?? [])
    const { env: declared, problem: envProblem } = parsedEnv?.value ?? { env: NO_ENV, problem: null }
    if (envProblem !== null) {
      const text = 'cannot be used: calls of the functions in its folder are refused with 503'
      warnings.push(pathWarning('CONFIG_CLOSED', toChild(node.path, CONFIG_FILES.env), text, 'Fix the file.'))
    }
    return {
      config: parsedConfig?.value ?? null,
      routes: parsedRoutes?.value ?? [],
      env: parsedDotenv === null ? declared : mergeDeclared(parsedDotenv.value, declared),
      envProblem,
      warnings,
    }
  }

  #read<T>(
    node: DirNode,
    kind: ConfigKind,
    text: ConfigText | null,
    parse: (text: string | null, label: string) => Parsed<T>,
  ): Parsed<T> | null {
    if (text === null) return null
    const known = this.#parsed.get(text)
    // One text object belongs to one file, hence to one kind.
    if (known !== undefined) return known as Parsed<T>
    const parsed = parseKept(text, toChild(node.path, CONFIG_FILES[kind]), parse)
    this.#parsed.set(text, parsed)
    return parsed
  }
}

/** A text with something wrong changes nothing while an earlier one was right: the function keeps its last good policy. */
function parseKept<T>(
  { text, lastGood }: ConfigText,
  label: string,
  parse: (text: string | null, label: string) => Parsed<T>,
): Parsed<T> {
  const parsed = parse(text, label)
  if (lastGood === null || (text !== null && !parsed.warnings.some(isProblem))) return parsed
  const kept = pathWarning('CONFIG_KEPT', label, 'is not used: its last good version stays in force', 'Fix the file.')
  return { value: parse(lastGood, label).value, warnings: [...parsed.warnings, kept] }
}

// A file that cannot be read has its warning from the snapshot.
function parseConfig(text: string | null, label: string): Parsed<FunctionConfig> {
  if (text === null) return { value: closedConfig(`${label} cannot be read`), warnings: [] }
  const { config, problems } = parseFunctionConfig(text, label)
  return { value: config, warnings: problems }
}

function parseRoutes(text: string | null, label: string): Parsed<readonly RouteEntry[]> {
  if (text === null) return { value: [], warnings: [] }
  const { routes, problems } = parseRoutesFile(text, label)
  return { value: routes, warnings: problems }
}

function parseEnv(text: string | null, label: string): Parsed<{ env: DeclaredEnv; problem: string | null }> {
  if (text === null) return { value: { env: NO_ENV, problem: `${label} cannot be read` }, warnings: [] }
  const { env, problem, problems } = parseFunctionEnv(text, label)
  return { value: { env, problem }, warnings: problems }
}

function parseDotenvFile(text: string | null, label: string): Parsed<DeclaredEnv> {
  if (text === null) return { value: NO_ENV, warnings: [] }
  const findings: Finding[] = []
  const values = parseDotenv(text, label, findings)
  return { value: toDeclared(values), warnings: toWarnings(findings) }
}

const PARSERS = { config: parseConfig, routes: parseRoutes, env: parseEnv, dotenv: parseDotenvFile }

/** How a snapshot of a functions root judges its config files: the part of its options that never differs. */
export const SNAPSHOT_RULES: Pick<SnapshotOptions, 'isGood' | 'excluded'> = {
  isGood: (kind, text) => !PARSERS[kind](text, '').warnings.some(isProblem),
  excluded: rootConfig => {
    const directory = parseFunctionConfig(rootConfig, '').config.assets?.directory
    return new Set(directory === undefined ? [] : [directory])
  },
}

/** True for a warning that says that something was not used as written; the others are notes. */
function isProblem({ code }: Warning): boolean {
  return code === 'CONFIG_VALUE' || code === 'CONFIG_NOT_JSON'
}
