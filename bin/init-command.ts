/** `fngw init` from its arguments to what it prints. Owner: §1, page bin/init. */

import { existsSync, readFileSync, writeFileSync } from 'node:fs'
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
import { checkVscodeFiles, VSCODE_TEMPLATES, writeVscodeFiles } from './vscode-files.ts'

const DEFAULT_NAME = 'hello'
const DEFAULT_TEMPLATE = 'node'

export interface InitFlags {
  template?: string
  method?: string
  types?: boolean
  vscode?: boolean
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
  if (flags.vscode === true) {
    if (givenName === undefined && flags.template === undefined) {
      const files = writeVscodeFiles(cwd, await findRuntimes(settings))
      return flags.json === true ? JSON.stringify({ files }) : toVscodeText(files)
    }
    checkVscodeFiles(cwd)
  }
  const { name, template, method, vscode } = await complete(givenName, flags, terminal, cwd)
  if (method !== null && !isMethod(method)) {
    throw new UsageError(`--method must be one of ${METHODS.join(', ')}; got "${method}"`)
  }
  const { functionsRoot } = settings
  const methods = method === null ? null : [method]
  const written = init({ cwd, functionsRoot, name, template, methods, withTypes: flags.types === true, version })
  const runtime = isLanguage(template) ? TEMPLATES[template].runtime : 'node'
  const result = { ...written, urlPath: (await findUrlPath(written, runtime, settings, cwd)) ?? written.urlPath }
  const enabled = enableRuntime(runtime, loaded, cwd)
  const added = vscode ? writeVscodeFiles(cwd, await findRuntimes(settings)) : []
  if (flags.json === true)
    return JSON.stringify({ ...result, files: [...result.files, ...(enabled === null ? [] : [enabled]), ...added] })
  const missing = toMissing(runtime, enabled === null ? settings : { ...settings, runtimesExplicit: false }, env)
  const isInstalled = program !== 'npx fngw' || findOwnPackage(cwd) !== null
  const text = toInitText(result, {
    program,
    port: settings.port,
    methods: methods ?? ['GET'],
    enabled,
    missing,
    isInstalled,
  })
  return added.length === 0 ? text : `${toVscodeText(added)}\n${text}`
}

function toVscodeText(files: readonly string[]): string {
  return files.map(file => `created ${file}`).join('\n')
}

/** The languages of the tree, those that are not enabled too. */
async function findRuntimes({ functionsRoot }: Settings): Promise<ReadonlySet<RuntimeName>> {
  const gateway = await createGateway({ functionsRoot, runtimes: [...RUNTIMES], inspect: true })
  try {
    return new Set(toRouteRows(gateway.catalog()).map(({ runtime }) => runtime as RuntimeName))
  } finally {
    await gateway.close()
  }
}

/** Prompts for missing values at a terminal; elsewhere they have their defaults. */
async function complete(
  name: string | undefined,
  { template, method, yes, vscode = false }: InitFlags,
  terminal: Terminal | null,
  cwd: string,
): Promise<{ name: string; template: string; method: string | null; vscode: boolean }> {
  const upper = method?.toUpperCase() ?? null
  if (name !== undefined) return { name, template: template ?? DEFAULT_TEMPLATE, method: upper, vscode }
  if (yes === true) return { name: DEFAULT_NAME, template: template ?? DEFAULT_TEMPLATE, method: upper, vscode }
  if (terminal === null) throw new UsageError('a name is missing: fngw init hello, or -y for one with defaults')
  const questions: Question[] = [{ text: 'Name, as in its URL', fallback: DEFAULT_NAME, check: toNameProblem }]
  if (template === undefined) questions.push(oneOfQuestion('Language', LANGUAGE_NAMES, DEFAULT_TEMPLATE))
  const [askedName = DEFAULT_NAME, askedTemplate] = await ask(terminal, questions)
  const chosen = template ?? askedTemplate ?? DEFAULT_TEMPLATE
  const others: Question[] = []
  const asksMethod = method === undefined && isLanguage(chosen)
  if (asksMethod) others.push(oneOfQuestion('Method', METHODS, 'GET'))
  const asksVscode = !vscode && VSCODE_TEMPLATES.has(chosen) && !existsSync(join(cwd, '.vscode'))
  if (asksVscode) others.push(oneOfQuestion('Debug in VS Code: add .vscode/launch.json', ['yes', 'no'], 'no'))
  const answers = others.length === 0 ? [] : await ask(terminal, others)
  return {
    name: askedName,
    template: chosen,
    method: asksMethod ? (answers[0] ?? 'GET') : upper,
    vscode: vscode || (asksVscode && answers.at(-1) === 'yes'),
  }
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
