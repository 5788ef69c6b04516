/** npm in an empty folder: its arguments, its environment, and the meaning of its errors. Owner: page dependencies/node. */

import type { GatewayError } from '../core/errors.ts'
import { type HostEnv, toToolHostEnv } from '../core/host.ts'
import { INSTALL_TIMEOUT_SECONDS } from '../core/limits.ts'
import type { OwnFolder } from '../files/own-folder.ts'
import type { BuildTools } from './build.ts'
import { type FailedImport, installError, passingError } from './install-step.ts'
import type { ImportedPackage } from './node-imports.ts'
import type { NodeManifest } from './node-manifest.ts'
import type { ToolResult } from './run-tool.ts'

/** Of npm's own settings those that say where packages come from and are kept; no token, no program to run. */
const NPM_VARIABLES =
  /^npm_config_(?:registry|cache|userconfig|globalconfig|cafile|ca|proxy|https_proxy|https-proxy|noproxy|strict_ssl|strict-ssl|offline|prefer_offline|prefer-offline|fetch_timeout)$/i

/** Given to every command. These win over `.npmrc` files and the environment. */
const FLAGS = [
  '--no-audit',
  '--no-fund',
  '--no-update-notifier',
  '--no-progress',
  '--no-workspaces',
  '--loglevel=error',
  '--color=false',
  // Packages for run time; file: packages are copied, so that the set is complete.
  '--omit=dev',
  '--install-links',
  '--package-lock=true',
  // Without a network the failure comes within seconds.
  '--fetch-retries=2',
  '--fetch-retry-mintimeout=500',
  '--fetch-retry-maxtimeout=5000',
] as const

/** The part of the host's environment that npm may see. */
export function toNpmEnv(hostEnv: HostEnv): Record<string, string> {
  const env = toToolHostEnv(hostEnv)
  for (const [name, value] of Object.entries(hostEnv)) {
    if (value !== undefined && NPM_VARIABLES.test(name)) env[name] = value
  }
  return { ...env, NO_UPDATE_NOTIFIER: '1', npm_config_node_options: '' }
}

/** The folder that asked for the packages, for messages. */
export interface NpmAsker {
  /** Folder below the functions root. */
  label: string
  /** File below the functions root that asks for the packages. */
  manifest: string
  /** Where names are imported that stand in no manifest. */
  imported: readonly ImportedPackage[]
}

interface NpmInstall extends NpmAsker {
  /** Full path of the program. */
  npm: string
  /** Holds `package.json`, and `package-lock.json` when `hasLock`. */
  cwd: string
  /** The folder that npm may write to, `cwd` in it; absent where it runs as the gateway. */
  draft?: OwnFolder
  hasLock: boolean
  /** Packages fetched from repositories are allowed. */
  allowSources: boolean
}

/**
 * Clean install where a lock file is, and an ordinary one where there is none or it does not fit.
 * No script of a package runs: `rebuildWithNpm` runs those that are allowed.
 */
export async function installWithNpm(install: NpmInstall, tools: BuildTools): Promise<void> {
  const { npm, cwd, draft, hasLock, allowSources } = install
  const run = (command: 'ci' | 'install') =>
    tools.run({
      command: npm,
      args: [command, '--ignore-scripts', ...(allowSources ? [] : ['--allow-git=none']), ...FLAGS],
      cwd,
      ...(draft !== undefined && { owns: draft }),
    })
  let result = await run(hasLock ? 'ci' : 'install')
  if (hasLock && result.code !== 0 && !result.timedOut && !tools.signal.aborted) result = await run('install')
  if (result.code !== 0) throw toNpmError(result, install)
}

/** Runs the install scripts of some packages that are there, named by `allow_scripts`. @param names - checked names */
export async function rebuildWithNpm(install: NpmInstall, names: readonly string[], tools: BuildTools): Promise<void> {
  if (names.length === 0) return
  const { npm, cwd, label } = install
  const args = ['rebuild', '--ignore-scripts=false', '--foreground-scripts', ...FLAGS, '--', ...names]
  const result = await tools.run({ command: npm, args, cwd })
  if (result.code === 0) return
  if (result.timedOut) throw toNpmError(result, install)
  const message = `${label}: an install script of ${names.join(', ')} failed: ${tailOf(result.output)}`
  throw passingError(
    message,
    'take the package out of allow_scripts in fn.config.json, or install what its script needs',
  )
}

const REGISTRY_HINT = 'check the network and the registry (npm config get registry); it is tried again after a while'

/** A sign of a failure in npm's output, and how to mend it; `%s` is the package that the pattern finds. */
type Reading = readonly [pattern: RegExp, hint: string]

/** Failures that last until a file changes. */
const LASTING: readonly Reading[] = [
  [
    // Without a name in quotes the address has it.
    /404 [^'\n]*'((?:@[\w.~-]+\/)?[\w.~-]+)@|E404(?![\s\S]*'\S+@)[\s\S]*?GET \S+?\/((?:@[\w.~-]+(?:%2f|\/))?[\w.~-]+) -/i,
    '%s is not in the registry: correct the name, or add it to package.json with its source',
  ],
  [
    /No matching version found for ((?:@[\w.~-]+\/)?[\w.~-]+)@[^\s]*/,
    'no such version of %s: npm view %s versions lists those there are',
  ],
  [/ERESOLVE[\s\S]*/, 'two packages want different versions of a third: change one of the ranges'],
  [/EALLOWGIT|allow-git/i, 'a package comes from a repository: use a version of the registry'],
  [
    /EINTEGRITY[^\n]*/,
    'the registry has other content than the lock file pins: delete package-lock.json when that is meant',
  ],
  [/EBADENGINE|EBADPLATFORM[^\n]*/, 'the package does not run on this system or version of node'],
  [/EINVALIDPACKAGENAME[^\n]*/, 'correct the name in package.json'],
]

/** Failures for which trying again may help. */
const PASSING: readonly Reading[] = [
  [/ENOSPC[^\n]*/, 'the disk is full'],
  [/EACCES|EROFS|EPERM/, 'npm writes its cache to ~/.npm: set npm_config_cache to a folder that can be written'],
  [
    /E401|E403|ENEEDAUTH/,
    'the registry wants a login: put its token into the .npmrc of the user that runs the gateway',
  ],
  [
    /ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|ENOTCACHED|ERR_SOCKET_TIMEOUT|network/i,
    REGISTRY_HINT,
  ],
]

/** The first known failure in npm's output; null when there is none. */
function readFailure(output: string): { isLasting: boolean; name: string; hint: string } | null {
  const text = toLines(output).join('\n')
  for (const [pattern, hint] of [...LASTING, ...PASSING]) {
    const found = pattern.exec(text)
    if (found === null) continue
    const name = (found[1] ?? found[2] ?? '').replace(/%2f/i, '/')
    return { isLasting: LASTING.some(reading => reading[0] === pattern), name, hint: hint.replaceAll('%s', name) }
  }
  return null
}

/** An npm that ended badly, in the words of a folder that wants what it was to install. */
export function toNpmError(result: ToolResult, asker: NpmAsker): GatewayError {
  const { label, manifest, imported } = asker
  if (result.timedOut) {
    const message = `${label}: npm took longer than ${INSTALL_TIMEOUT_SECONDS} s and was stopped`
    return passingError(message, REGISTRY_HINT, result)
  }
  const failure = readFailure(result.output)
  if (failure === null)
    return passingError(`${label}: npm: ${result.problem ?? tailOf(result.output)}`, undefined, result)
  const { isLasting, name, hint } = failure
  const message = `${label}: npm: ${tailOf(result.output)}`
  if (!isLasting) return passingError(message, hint, result)
  const place = imported.find(one => one.name === name)
  if (place === undefined) return installError(message, { file: manifest }, hint, result)
  const { file, line } = place
  return installError(`${file}:${line}: ${message}`, { file, line }, hint, result)
}

/**
 * The packages of imports that a failed install comes from: those that npm names, or else all of them. None where npm names a package of
 * the manifest, and where trying again may help.
 * @param added - packages that only imports ask for
 */
export function blameImports(
  result: ToolResult,
  added: Readonly<Record<string, string>>,
  { label, manifest }: { label: string; manifest: NodeManifest | null },
): ReadonlyMap<string, FailedImport> {
  const failure = readFailure(result.output)
  const named = failure?.name ?? ''
  const isPassing = result.timedOut || result.problem !== null || failure?.isLasting === false
  if (isPassing || manifest?.declares(named) === true) return new Map()
  const text = toLines(result.output).join('\n')
  const names = Object.keys(added)
  const shown = names.filter(name => named === name || (named === '' && text.includes(`${name}@`)))
  const hint = failure?.hint ?? 'correct the import, or name a version in package.json'
  const failed = { message: `${label}: npm: ${tailOf(result.output)}`, hint }
  return new Map((shown.length === 0 ? names : shown).map(name => [name, failed]))
}

/** Lines of npm that say something: without its prefix, its codes' repetition and the place of its log. */
function toLines(output: string): string[] {
  return output
    .split('\n')
    .map(line => line.replace(/^npm (?:error|ERR!|warn|WARN) ?/, '').trimEnd())
    .filter(line => line.trim() !== '')
    .filter(
      line =>
        !/A complete log of this run|debug-\d+\.log|^Note that you can also install|^Unknown (?:user|env|cli) config/.test(
          line,
        ),
    )
}

const MAX_TAIL_LINES = 4
const MAX_TAIL_CHARS = 600

/** The lines of npm's output that matter, in one. */
function tailOf(output: string): string {
  const text = toLines(output).slice(0, MAX_TAIL_LINES).join(' | ')
  return text.length <= MAX_TAIL_CHARS ? text : `${text.slice(0, MAX_TAIL_CHARS)}...`
}
