/** `fngw init`: a function directory to start from. It never overwrites. Owner: §1, page bin/init. */

import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join, relative, sep } from 'node:path'
import { isFunctionName } from '../lib/core/identity.ts'
import { unservedReason } from '../lib/discovery/layouts.ts'
import { runtimeFile } from '../lib/runtime/package-files.ts'
import { API_FILES, type StarterFile, toSpaFiles } from './starters.ts'
import { isLanguage, TEMPLATE_NAMES, TEMPLATES, toConfigText } from '../lib/core/templates.ts'
import { UsageError } from './usage-error.ts'

const IGNORE_FILE = '.gitignore'
/** Of a project that has none yet. Shared packs are sources. */
const IGNORED = `node_modules/
.env.local
**/.svc/*
!**/.svc/packs/
`

export interface InitRequest {
  /** Folder that paths are shown relative to. */
  cwd: string
  /** Full path of the folder that holds the functions; made when missing. */
  functionsRoot: string
  name: string
  template: string
  /** Methods of the function; null for those of the template. */
  methods?: readonly string[] | null
  /** Adds `_fngw_types.py`. */
  withTypes?: boolean
  /** Version of this package. */
  version: string
}

export interface InitResult {
  /** Full path of the new folder; of the functions root where the files belong there. */
  folder: string
  /** Paths of the written files, relative to the working directory. */
  files: string[]
  /** Where the function is expected to answer. */
  urlPath: string
}

/** The plan: files below a folder, and the URL path of the first one to try. */
interface Plan {
  folder: string
  files: readonly StarterFile[]
  urlPath: string
}

/**
 * Writes a function, or one of the larger starters, below the functions root.
 * @throws UsageError for a bad name or template, or when a file is already there
 */
export function init(request: InitRequest): InitResult {
  const { cwd, name } = request
  checkName(name)
  const { folder, files, urlPath } = toPlan(request)
  const paths = files.map(([path]) => join(folder, path))
  for (const path of paths) {
    if (!existsSync(path)) continue
    throw new UsageError(
      `${relative(cwd, path)} is already there and is left as it is; choose another name or remove it`,
    )
  }
  for (const [index, path] of paths.entries()) {
    mkdirSync(dirname(path), { recursive: true })
    // `wx`: a file that appeared since the check is not overwritten either.
    writeFileSync(path, files[index]![1], { flag: 'wx' })
  }
  const ignore = join(cwd, IGNORE_FILE)
  if (!existsSync(ignore)) {
    writeFileSync(ignore, IGNORED, { flag: 'wx' })
    paths.push(ignore)
  }
  return { folder, files: paths.map(path => toPosix(relative(cwd, path))), urlPath }
}

/** A name that discovery would not publish is refused before anything is written. */
export function checkName(name: string): void {
  if (!isFunctionName(name)) {
    throw new UsageError(
      `name must be segments of letters, digits, _ and - joined by /, such as hello or api/users; got "${name}"`,
    )
  }
  const reason = unservedReason(name)
  if (reason !== null) throw new UsageError(`${reason}; got "${name}"`)
}

function toPlan({ cwd, functionsRoot, name, template, methods = null, withTypes = false, version }: InitRequest): Plan {
  const folder = join(functionsRoot, name)
  if (withTypes && template !== 'python') {
    throw new UsageError('--types is for python; in TypeScript write: import type { FnEvent, FnResponse } from "fngw"')
  }
  if (methods !== null && !isLanguage(template))
    throw new UsageError(`--method is for one function, not for ${template}`)
  if (template === 'api') return { folder, files: API_FILES, urlPath: `/${name}` }
  if (template === 'spa') {
    return { folder: functionsRoot, files: toSpaFiles(name, toSchema(cwd, functionsRoot, version)), urlPath: '/' }
  }
  if (!isLanguage(template)) {
    throw new UsageError(`--template must be one of ${TEMPLATE_NAMES.join(', ')}; got "${template}"`)
  }
  const { fileName, fileText } = TEMPLATES[template]
  const config = toConfigText(TEMPLATES[template], toSchema(cwd, folder, version), methods ?? ['GET', 'POST'])
  const files: StarterFile[] = [
    [fileName, fileText],
    ['fn.config.json', config],
  ]
  if (withTypes) files.push(['_fngw_types.py', readFileSync(runtimeFile('python/_fngw_types.py'), 'utf8')])
  return { folder, files, urlPath: `/${name}` }
}

const SCHEMA = 'spec/schema/fn.config.schema.json'

/** Where editors find the schema: in the project's own packages, else in the registry's copy of this version. */
function toSchema(cwd: string, folder: string, version: string): string {
  const own = findOwnPackage(cwd)
  return own === null ? `https://unpkg.com/fngw@${version}/${SCHEMA}` : toPosix(relative(folder, join(own, SCHEMA)))
}

/** Full path of this package among those of the project; null when it is not installed there. */
export function findOwnPackage(cwd: string): string | null {
  for (let at = cwd; ; at = dirname(at)) {
    const folder = join(at, 'node_modules', 'fngw')
    if (existsSync(join(folder, SCHEMA))) return folder
    if (dirname(at) === at) return null
  }
}

function toPosix(path: string): string {
  return path.split(sep).join('/')
}

interface NextSteps {
  /** How `fngw` is typed here. */
  program: string
  /** Port that `fngw dev` will take. */
  port: number
  methods: readonly string[]
  /** Project file in which the language was enabled. */
  enabled?: string | null
  /** Programs to install first; null if none. */
  missing: string | null
  /** The project has this package in its `node_modules`, or the program is on the path. */
  isInstalled: boolean
}

/** Next steps, for a terminal. */
export function toInitText(
  { files, urlPath }: InitResult,
  { program, port, methods, enabled = null, missing, isInstalled }: NextSteps,
): string {
  const method = methods.includes('GET') ? '' : `-X ${methods[0]} `
  const query = urlPath === '/' ? '' : '?name=you'
  return [
    ...files.map(file => `created ${file}`),
    ...(enabled === null ? [] : [`enabled the language in ${enabled}`]),
    '',
    'next:',
    ...(isInstalled ? [] : ['  npm i -D fngw']),
    ...(missing === null ? [] : [`  ${missing}`]),
    `  ${program} dev`,
    `  curl ${method}'http://127.0.0.1:${port === 0 ? '<port>' : port}${urlPath}${query}'`,
    '',
  ].join('\n')
}
