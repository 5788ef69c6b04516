/** `fngw init` from its arguments to what it prints. Owner: §1, page bin/init. */

import { readFileSync, writeFileSync } from 'node:fs'
import { basename, join, relative } from 'node:path'
import { editJsonObject, findIndent, findJsonValue } from '../lib/config/json-text.ts'
import { loadSettings } from '../lib/config/project-file.ts'
import type { Settings } from '../lib/config/settings.ts'
import { DEFAULT_RUNTIMES, isMethod, METHODS, type RuntimeName, RUNTIMES } from '../lib/core/identity.ts'
import { createGateway, SettingsError } from '../lib/index.ts'
import { findToolchain } from '../lib/runtime/binaries.ts'
import { ask, oneOfQuestion, type Question, type Terminal } from './ask.ts'
import { checkName, findOwnPackage, init, type InitResult, toInitText } from './init.ts'
import { toRouteRows } from './routes.ts'
import { isLanguage, LANGUAGE_NAMES, TEMPLATES } from '../lib/core/templates.ts'
import { UsageError } from './usage-error.ts'

const DEFAULT_NAME = 'hello'
const DEFAULT_TEMPLATE = 'node'

export interface InitFlags {
  template?: string
  method?: string
  types?: boolean
  yes?: boolean
  json?: boolean
}

export interface InitSurroundings {
  cwd: string
  env: Readonly<Record<string, string | undefined>>
  /** null without a terminal. */
  terminal: Terminal | null
  /** How `fngw` is typed here. */
  program: string
  version: string
}

/**
 * Writes what was asked for; without a name it asks at a terminal.
 * @returns what to print
 * @throws UsageError, SettingsError
 */
export async function runInit(
  givenName: string | undefined,
  flags: InitFlags,
  { cwd, env, terminal, program, version }: InitSurroundings,
): Promise<string> {
  const loaded = loadSettings({ cwd, env })
  const { settings, problems } = loaded
  if (problems.length > 0) throw new SettingsError(problems)
  const { name, template, method } = await complete(givenName, flags, terminal)
  if (method !== null && !isMethod(method)) {
    throw new UsageError(`--method must be one of ${METHODS.join(', ')}; got "${method}"`)
  }
  const { functionsRoot } = settings
  const methods = method === null ? null : [method]
  const written = init({ cwd, functionsRoot, name, template, methods, withTypes: flags.types === true, version })
  const runtime = isLanguage(template) ? TEMPLATES[template].runtime : 'node'
  const result = { ...written, urlPath: (await findUrlPath(written, runtime, settings, cwd)) ?? written.urlPath }
  const enabled = enableRuntime(runtime, loaded, cwd)
  if (flags.json === true)
    return JSON.stringify({ ...result, files: [...result.files, ...(enabled === null ? [] : [enabled])] })
  const missing = toMissing(runtime, enabled === null ? settings : { ...settings, runtimesExplicit: false }, env)
  const isInstalled = program !== 'npx fngw' || findOwnPackage(cwd) !== null
  return toInitText(result, {
    program,
    port: settings.port,
    methods: methods ?? ['GET'],
    enabled,
    missing,
    isInstalled,
  })
}

/** Prompts for missing values at a terminal; elsewhere they have their defaults. */
async function complete(
  name: string | undefined,
  { template, method, yes }: InitFlags,
  terminal: Terminal | null,
): Promise<{ name: string; template: string; method: string | null }> {
  const upper = method?.toUpperCase() ?? null
  if (name !== undefined) return { name, template: template ?? DEFAULT_TEMPLATE, method: upper }
  if (yes === true) return { name: DEFAULT_NAME, template: template ?? DEFAULT_TEMPLATE, method: upper }
  if (terminal === null) throw new UsageError('a name is missing: fngw init hello, or -y for one with defaults')
  const questions: Question[] = [{ text: 'Name, as in its URL', fallback: DEFAULT_NAME, check: toNameProblem }]
  if (template === undefined) questions.push(oneOfQuestion('Language', LANGUAGE_NAMES, DEFAULT_TEMPLATE))
  const [askedName = DEFAULT_NAME, askedTemplate] = await ask(terminal, questions)
  const chosen = template ?? askedTemplate ?? DEFAULT_TEMPLATE
  if (method !== undefined || !isLanguage(chosen)) return { name: askedName, template: chosen, method: upper }
  const [askedMethod = 'GET'] = await ask(terminal, [oneOfQuestion('Method', METHODS, 'GET')])
  return { name: askedName, template: chosen, method: askedMethod }
}

function toNameProblem(name: string): string | null {
  try {
    checkName(name)
    return null
  } catch (error) {
    return (error as Error).message
  }
}

/** The path that is really served: without a runtime's folder at the top. null when it is unknown. */
async function findUrlPath(
  { files }: InitResult,
  runtime: RuntimeName,
  { functionsRoot }: Settings,
  cwd: string,
): Promise<string | null> {
  const gateway = await createGateway({ functionsRoot, runtimes: [...RUNTIMES], inspect: true })
  try {
    const root = relative(cwd, functionsRoot)
    const handlers = files.map(file => (root === '' ? file : file.slice(root.length + 1)))
    const rows = toRouteRows(gateway.catalog())
    const own = rows.find(row => row.runtime === runtime && row.file === handlers[0])
    return own?.path ?? null
  } finally {
    await gateway.close()
  }
}

/**
 * Adds a runtime that is off by default to `runtimes` of the project file, which is created where there is none.
 * @returns the file, relative to the working directory; null when nothing had to be written
 */
function enableRuntime(
  runtime: RuntimeName,
  { settings, sources, configFile }: ReturnType<typeof loadSettings>,
  cwd: string,
): string | null {
  const isNamedElsewhere = sources.runtimes!.source === 'env'
  if (settings.runtimes.includes(runtime) || DEFAULT_RUNTIMES.includes(runtime) || isNamedElsewhere) return null
  const path = configFile ?? join(cwd, 'fngw.json')
  const text = configFile === null ? null : readFileSync(path, 'utf8')
  const runtimes = [...settings.runtimes, runtime]
  writeFileSync(path, basename(path) === 'package.json' ? inPackage(text!, runtimes) : withRuntimes(text, runtimes, 0))
  return relative(cwd, path)
}

function withRuntimes(text: string | null, runtimes: readonly string[], depth: number): string {
  const list = `[${runtimes.map(name => JSON.stringify(name)).join(', ')}]`
  const object = editJsonObject(text, new Map([['runtimes', list]]), findIndent(text), depth)
  return depth === 0 ? `${object}\n` : object
}

/** The settings of a project may be the key `fngw` of its package.json. */
function inPackage(text: string, runtimes: readonly string[]): string {
  const settings = withRuntimes(findJsonValue(text, 'fngw'), runtimes, 1)
  return `${editJsonObject(text, new Map([['fngw', settings]]), findIndent(text))}\n`
}

/** Steps that are required before the function can run. */
function toMissing(
  runtime: RuntimeName,
  { runtimes, runtimesExplicit, binaries }: Settings,
  env: Readonly<Record<string, string | undefined>>,
): string | null {
  if (runtimesExplicit && !runtimes.includes(runtime))
    return `add ${runtime} to the runtimes that are named (FN_RUNTIMES, or "runtimes" in fngw.json)`
  if (runtime === 'lua') return null
  return findToolchain(runtime, binaries, env).problem
}
