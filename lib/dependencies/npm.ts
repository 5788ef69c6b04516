/** npm in an empty folder: what it is called with, what it may see, and what its errors mean. Owner: page dependencies/node. */

import type { GatewayError } from '../core/errors.ts'
import { type HostEnv, toToolHostEnv } from '../core/host.ts'
import type { OwnFolder } from '../files/own-folder.ts'
import type { BuildTools } from './build.ts'
import { type FailedImport, installError, passingError } from './install-step.ts'
import type { ImportedPackage } from './node-imports.ts'
import { DECLARING, type NodeManifest } from './node-manifest.ts'
import type { ToolResult } from './run-tool.ts'

/** Of npm's own settings those that say where packages come from and are kept; no token, no program to run. */
const NPM_VARIABLES =
  /^npm_config_(?:registry|cache|userconfig|globalconfig|cafile|ca|proxy|https_proxy|https-proxy|noproxy|strict_ssl|strict-ssl|offline|prefer_offline|prefer-offline|fetch_timeout)$/i

/** Given to every command. What stands here wins over `.npmrc` files and the environment. */
const FLAGS = [
  '--no-audit',
  '--no-fund',
  '--no-update-notifier',
  '--no-progress',
  '--no-workspaces',
  '--loglevel=error',
  '--color=false',
  // What a function needs at run time; file: packages are copied, so that the set holds all it needs.
  '--omit=dev',
  '--install-links',
  '--package-lock=true',
  // A machine without network is told so in seconds.
  '--fetch-retries=2',
  '--fetch-retry-mintimeout=500',
  '--fetch-retry-maxtimeout=5000',
] as const

/** What npm may see of the host's environment. */
export function toNpmEnv(hostEnv: HostEnv): Record<string, string> {
  const env = toToolHostEnv(hostEnv)
  for (const [name, value] of Object.entries(hostEnv)) {
    if (value !== undefined && NPM_VARIABLES.test(name)) env[name] = value
  }
  return { ...env, NO_UPDATE_NOTIFIER: '1', npm_config_node_options: '' }
}

/** Who asked for the packages, for messages. */
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
  /** What npm may write to, `cwd` in it; absent where it runs as the gateway. */
  draft?: OwnFolder
  hasLock: boolean
  /** Packages fetched from repositories are allowed. */
  allowSources: boolean
  timeoutMs: number
}

/**
 * Clean install where a lock file is, and an ordinary one where there is none or it does not fit.
 * No script of a package runs: `rebuildWithNpm` runs those that are allowed.
 */
export async function installWithNpm(install: NpmInstall, tools: BuildTools): Promise<void> {
  const { npm, cwd, draft, hasLock, allowSources, timeoutMs } = install
  const run = (command: 'ci' | 'install') =>
    tools.run({
      command: npm,
      args: [command, '--ignore-scripts', ...(allowSources ? [] : ['--allow-git=none']), ...FLAGS],
      cwd,
      ...(draft !== undefined && { owns: draft }),
    })
  let result = await run(hasLock ? 'ci' : 'install')
  if (hasLock && result.code !== 0 && !result.timedOut && !tools.signal.aborted) result = await run('install')
  if (result.code !== 0) throw toNpmError(result, install, timeoutMs)
}

/** Runs the install scripts of some packages that are there, named by `allow_scripts`. @param names - checked names */
export async function rebuildWithNpm(install: NpmInstall, names: readonly string[], tools: BuildTools): Promise<void> {
  if (names.length === 0) return
  const { npm, cwd, timeoutMs, label } = install
  const args = ['rebuild', '--ignore-scripts=false', '--foreground-scripts', ...FLAGS, '--', ...names]
  const result = await tools.run({ command: npm, args, cwd })
  if (result.code === 0) return
  if (result.timedOut) throw toNpmError(result, install, timeoutMs)
  const message = `${label}: an install script of ${names.join(', ')} failed: ${tailOf(result.output)}`
  throw passingError(
    message,
    'take the package out of allow_scripts in fn.config.json, or install what its script needs',
  )
}

interface Reading {
  pattern: RegExp
  /** Lasts until a file changes. */
  isLasting: boolean
  hint: (found: RegExpExecArray) => string
}

const REGISTRY_HINT = 'check the network and the registry (npm config get registry); it is tried again after a while'
const READINGS: readonly Reading[] = [
  {
    // Without a name in quotes the address has it.
    pattern:
      /404 [^'\n]*'((?:@[\w.~-]+\/)?[\w.~-]+)@|E404(?![\s\S]*'\S+@)[\s\S]*?GET \S+?\/((?:@[\w.~-]+(?:%2f|\/))?[\w.~-]+) -/i,
    isLasting: true,
    hint: found =>
      `${nameIn(found)} is not in the registry: correct the name, or add it to package.json with its source`,
  },
  {
    pattern: /No matching version found for ((?:@[\w.~-]+\/)?[\w.~-]+)@[^\s]*/,
    isLasting: true,
    hint: found => `no such version of ${nameIn(found)}: npm view ${nameIn(found)} versions lists those there are`,
  },
  {
    pattern: /ERESOLVE[\s\S]*/,
    isLasting: true,
    hint: () => 'two packages want different versions of a third: change one of the ranges',
  },
  {
    pattern: /EALLOWGIT|allow-git/i,
    isLasting: true,
    hint: () => 'a package comes from a repository: use a version of the registry',
  },
  {
    pattern: /EINTEGRITY[^\n]*/,
    isLasting: true,
    hint: () => 'the registry has other content than the lock file pins: delete package-lock.json when that is meant',
  },
  {
    pattern: /EBADENGINE|EBADPLATFORM[^\n]*/,
    isLasting: true,
    hint: () => 'the package does not run on this system or version of node',
  },
  { pattern: /EINVALIDPACKAGENAME[^\n]*/, isLasting: true, hint: () => 'correct the name in package.json' },
  { pattern: /ENOSPC[^\n]*/, isLasting: false, hint: () => 'the disk is full' },
  {
    pattern: /EACCES|EROFS|EPERM/,
    isLasting: false,
    hint: () => 'npm writes its cache to ~/.npm: set npm_config_cache to a folder that can be written',
  },
  {
    pattern: /E401|E403|ENEEDAUTH/,
    isLasting: false,
    hint: () => 'the registry wants a login: put its token into the .npmrc of the user that runs the gateway',
  },
  {
    pattern: /ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|ENOTCACHED|ERR_SOCKET_TIMEOUT|network/i,
    isLasting: false,
    hint: () => REGISTRY_HINT,
  },
]

/** An npm that ended badly, in the words of a folder that wants what it was to install. */
export function toNpmError(result: ToolResult, asker: NpmAsker, timeoutMs: number): GatewayError {
  const { label, manifest, imported } = asker
  if (result.timedOut) {
    return passingError(`${label}: npm took longer than ${timeoutMs / 1000} s and was stopped`, REGISTRY_HINT, result)
  }
  const text = toLines(result.output).join('\n')
  for (const { pattern, isLasting, hint } of READINGS) {
    const found = pattern.exec(text)
    if (found === null) continue
    const message = `${label}: npm: ${tailOf(result.output)}`
    if (!isLasting) return passingError(message, hint(found), result)
    const place = imported.find(({ name }) => name === nameIn(found))
    return place === undefined
      ? installError(message, { file: manifest }, hint(found), result)
      : installError(
          `${place.file}:${place.line}: ${message}`,
          { file: place.file, line: place.line },
          hint(found),
          result,
        )
  }
  return passingError(`${label}: npm: ${result.problem ?? tailOf(result.output)}`, undefined, result)
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
  const text = toLines(result.output).join('\n')
  const reading = READINGS.find(({ pattern }) => pattern.test(text))
  const found = reading?.pattern.exec(text)
  const named = found == null ? '' : nameIn(found)
  const isDeclared = manifest !== null && DECLARING.some(field => Object.hasOwn(manifest.of(field), named))
  const isPassing = result.timedOut || result.problem !== null || reading?.isLasting === false
  if (isPassing || isDeclared) return new Map()
  const names = Object.keys(added)
  const shown = names.filter(name => named === name || (named === '' && text.includes(`${name}@`)))
  const hint = found == null ? 'correct the import, or name a version in package.json' : reading!.hint(found)
  const failed = { message: `${label}: npm: ${tailOf(result.output)}`, hint }
  return new Map((shown.length === 0 ? names : shown).map(name => [name, failed]))
}

function nameIn([, first, second]: RegExpExecArray): string {
  return (first ?? second ?? '').replace(/%2f/i, '/')
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

/** What of npm's output matters, in one line. */
function tailOf(output: string): string {
  const text = toLines(output).slice(0, MAX_TAIL_LINES).join(' | ')
  return text.length <= MAX_TAIL_CHARS ? text : `${text.slice(0, MAX_TAIL_CHARS)}...`
}
