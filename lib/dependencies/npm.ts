/** npm in an empty folder: its arguments, its environment, and the meaning of its errors. Owner: page dependencies/node. */

import { type HostEnv, toToolHostEnv } from '../core/host.ts'
import type { OwnFolder } from '../files/own-folder.ts'
import type { BuildTools } from './run-tool.ts'
import { passingError, readFailure, type ToolWords } from './tool-failure.ts'

/** Of npm's own settings those that say where packages come from and are kept; no token, no program to run. */
const NPM_VARIABLES =
  /^npm_config_(?:registry|cache|userconfig|globalconfig|cafile|ca|proxy|https_proxy|https-proxy|noproxy|strict_ssl|strict-ssl|offline|prefer_offline|prefer-offline|fetch_timeout)$/i

/** Given to every command. These win over `.npmrc` files and the environment. */
const FLAGS = [
  ...['--no-audit', '--no-fund', '--no-update-notifier', '--no-progress', '--no-workspaces'],
  ...['--loglevel=error', '--color=false'],
  // Packages for run time; file: packages are copied, so that the set is complete.
  ...['--omit=dev', '--install-links', '--package-lock=true'],
  // Without a network the failure comes within seconds.
  ...['--fetch-retries=2', '--fetch-retry-mintimeout=500', '--fetch-retry-maxtimeout=5000'],
] as const

/** The part of the host's environment that npm may see. */
export function toNpmEnv(hostEnv: HostEnv): Record<string, string> {
  const env = toToolHostEnv(hostEnv)
  for (const [name, value] of Object.entries(hostEnv)) {
    if (value !== undefined && NPM_VARIABLES.test(name)) env[name] = value
  }
  return { ...env, NO_UPDATE_NOTIFIER: '1', npm_config_node_options: '' }
}

interface NpmInstall {
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
 * @throws ToolFailure
 */
export async function installWithNpm(install: NpmInstall, tools: BuildTools): Promise<void> {
  const { npm, cwd, draft, hasLock, allowSources } = install
  const flags = ['--ignore-scripts', ...(allowSources ? [] : ['--allow-git=none']), ...FLAGS]
  const run = (command: 'ci' | 'install') =>
    tools.run({ command: npm, args: [command, ...flags], cwd, ...(draft !== undefined && { owns: draft }) })
  let result = await run(hasLock ? 'ci' : 'install')
  if (hasLock && result.code !== 0 && !result.timedOut && !tools.signal.aborted) result = await run('install')
  if (result.code !== 0) throw readFailure(result, WORDS)
}

/**
 * Runs the install scripts of some installed packages, named by `allow_scripts`.
 * @param label - of the folder @param names - checked names
 */
export async function rebuildWithNpm(
  { npm, cwd }: NpmInstall,
  label: string,
  names: readonly string[],
  tools: BuildTools,
): Promise<void> {
  if (names.length === 0) return
  const args = ['rebuild', '--ignore-scripts=false', '--foreground-scripts', ...FLAGS, '--', ...names]
  const result = await tools.run({ command: npm, args, cwd })
  if (result.code === 0) return
  const failure = readFailure(result, WORDS)
  if (result.timedOut) throw failure
  const message = `${label}: an install script of ${names.join(', ')} failed: ${failure.message.slice('npm: '.length)}`
  const hint = 'take the package out of allow_scripts in fn.config.json, or install what its script needs'
  throw passingError(message, hint)
}

const REGISTRY_HINT = 'check the network and the registry (npm config get registry); it is tried again after a while'

const WORDS: ToolWords = {
  tool: 'npm',
  maxLines: 4,
  maxChars: 600,
  lateHint: REGISTRY_HINT,
  toLines,
  toText: output => toLines(output).join('\n'),
  nameOf: name => name.replace(/%2f/i, '/'),
  signs: [
    {
      // Without a name in quotes the address has it.
      pattern:
        /404 [^'\n]*'((?:@[\w.~-]+\/)?[\w.~-]+)@|E404(?![\s\S]*'\S+@)[\s\S]*?GET \S+?\/((?:@[\w.~-]+(?:%2f|\/))?[\w.~-]+) -/i,
      kind: 'lasting',
      hint: '%s is not in the registry: correct the name, or add it to package.json with its source',
    },
    {
      pattern: /No matching version found for ((?:@[\w.~-]+\/)?[\w.~-]+)@[^\s]*/,
      kind: 'lasting',
      hint: 'no such version of %s: npm view %s versions lists those there are',
    },
    {
      pattern: /ERESOLVE[\s\S]*/,
      kind: 'lasting',
      hint: 'two packages require different versions of a third: change one of the ranges',
    },
    {
      pattern: /EALLOWGIT|allow-git/i,
      kind: 'lasting',
      hint: 'a package comes from a repository: use a version of the registry',
    },
    {
      pattern: /EINTEGRITY[^\n]*/,
      kind: 'lasting',
      hint: 'the registry has other content than the lock file pins: delete package-lock.json when that is meant',
    },
    {
      pattern: /EBADENGINE|EBADPLATFORM[^\n]*/,
      kind: 'lasting',
      hint: 'the package does not run on this system or version of node',
    },
    { pattern: /EINVALIDPACKAGENAME[^\n]*/, kind: 'lasting', hint: 'correct the name in package.json' },
    { pattern: /ENOSPC[^\n]*/, kind: 'passing', hint: 'the disk is full' },
    {
      pattern: /EACCES|EROFS|EPERM/,
      kind: 'passing',
      hint: 'npm writes its cache to ~/.npm: set npm_config_cache to a folder that can be written',
    },
    {
      pattern: /E401|E403|ENEEDAUTH/,
      kind: 'passing',
      hint: 'the registry requires a login: put its token into the .npmrc of the user that runs the gateway',
    },
    {
      pattern:
        /ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|ENOTCACHED|ERR_SOCKET_TIMEOUT|network/i,
      kind: 'passing',
      hint: REGISTRY_HINT,
    },
  ],
}

/** Without npm's prefix, repeated codes and the place of its log. */
function toLines(output: string): string[] {
  const noise =
    /A complete log of this run|debug-\d+\.log|^Note that you can also install|^Unknown (?:user|env|cli) config/
  return output
    .split('\n')
    .map(line => line.replace(/^npm (?:error|ERR!|warn|WARN) ?/, '').trimEnd())
    .filter(line => line !== '' && !noise.test(line))
}
