/** Which running gateway a command calls: by its flags, the records of the project, its settings. Owner: page bin/api-client. */

import { existsSync, readdirSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { Command } from 'commander'
import { loadSettings } from '../lib/config/project-file.ts'
import { readSecret } from '../lib/config/setting-checks.ts'
import type { ResolvedSettings } from '../lib/config/settings.ts'
import { SettingsError } from '../lib/index.ts'
import { ApiClient, type ApiTarget } from './api-client.ts'
import { findGateways, type RunningGateway } from './running-gateways.ts'
import { addSettingFlags, toFlags } from './setting-flags.ts'
import { CommandError, UsageError } from './usage-error.ts'

/** Settings that say where the gateway listens, described for a command that calls it. */
const ADDRESS_SETTINGS = {
  host: 'Host of the running gateway.',
  port: 'Port of the running gateway. Without it, the command uses the gateway that serves this project.',
  controlPort: 'Port of its control plane, if it has a separate one.',
}

interface ApiFlags {
  url?: string
  tokenFile?: string
  config?: string
}

/** The context of a command. */
interface Surroundings {
  cwd: string
  env: Readonly<Record<string, string | undefined>>
}

/** Adds `--url`, `--token-file` and the settings of the address. @param defaults - of the command, for settings that it takes and does not show */
export function addApiFlags(command: Command, defaults: Readonly<Record<string, unknown>> = {}): Command {
  const shown = Object.keys(ADDRESS_SETTINGS)
  return addSettingFlags(command, { defaults, shown, descriptions: ADDRESS_SETTINGS })
    .option('--url <address>', 'Address of the running gateway, such as http://127.0.0.1:8080.')
    .option('--token-file <file>', 'File with the admin token (default: the variable FN_ADMIN_TOKEN).')
}

/**
 * @param port - `public` calls public routes, also if the control plane has a separate port
 * @throws UsageError, SettingsError, CommandError when there is no address
 */
export function toApiClient(command: Command, { cwd, env }: Surroundings, port: Wanted = 'control'): ApiClient {
  const { url, tokenFile, config } = command.opts<ApiFlags>()
  const loaded = loadSettings({ env, cwd, flags: toFlags(command), explicit: config ?? null })
  const resolved = withToken(loaded, tokenFile ?? null)
  // An address that was given needs no settings but the token's.
  const problems = resolved.problems.filter(({ name }) => url === undefined || /TOKEN|token/.test(name))
  if (problems.length > 0) throw new SettingsError(problems)
  return new ApiClient({
    url: url === undefined ? findUrl(resolved, cwd, port) : checkUrl(url),
    token: resolved.settings.adminToken,
  })
}

/** A file that is named on the command line is stronger than every variable. */
function withToken(resolved: ResolvedSettings, file: string | null): ResolvedSettings {
  if (file === null) return readSecret(resolved, 'adminToken', resolved.settings.adminTokenFile)
  const sources = { ...resolved.sources, adminTokenFile: { source: 'flag' as const, name: '--token-file' } }
  return readSecret({ ...resolved, sources, settings: { ...resolved.settings, adminToken: null } }, 'adminToken', file)
}

type Wanted = 'control' | 'public'

/** An address on the command line or FN_PORT, else the gateway that runs in the project, else the address of the settings. */
function findUrl(resolved: ResolvedSettings, cwd: string, wanted: Wanted): string {
  const { host, port, controlPort } = resolved.sources
  const isGiven = port!.source === 'env' || [host, port, controlPort].some(from => from!.source === 'flag')
  const running = isGiven ? null : findRunning(resolved, cwd)
  if (running !== null) return (wanted === 'control' ? running.control : null) ?? running.url
  return toUrl(resolved, wanted)
}

function findRunning(resolved: ResolvedSettings, cwd: string): RunningGateway | null {
  for (const folders of toSearched(resolved, cwd)) {
    const running = folders.flatMap(findGateways)
    if (running.length === 0) continue
    const configured = resolved.settings.port === 0 ? null : toUrl(resolved, 'public')
    const chosen = running.length === 1 ? running[0] : running.find(({ url }) => url === configured)
    if (chosen !== undefined) return chosen
    const list = running.map(({ url, pid }) => `${url} (pid ${pid})`).join(', ')
    throw new CommandError(`${running.length} gateways serve this project: ${list}; choose one with --url`)
  }
  return null
}

/** Functions roots to search for running gateways, nearest first. Without a named one, `fngw dev [dir]` may serve a child or a parent folder. */
function toSearched({ settings, sources }: ResolvedSettings, cwd: string): string[][] {
  const { functionsRoot } = settings
  if (sources.functionsRoot!.source !== 'default') return [[functionsRoot]]
  const children = readdirSync(functionsRoot, { withFileTypes: true }).filter(entry => entry.isDirectory())
  const searched = [[functionsRoot, ...children.map(({ name }) => join(functionsRoot, name))]]
  for (let folder = cwd; !existsSync(join(folder, '.git')) && dirname(folder) !== folder; folder = dirname(folder))
    searched.push([dirname(folder)])
  return searched
}

/** Where a gateway with these settings listens. */
function toUrl({ settings }: Pick<ResolvedSettings, 'settings'>, wanted: Wanted): string {
  const port = (wanted === 'control' ? settings.controlPort : null) ?? settings.port
  if (port === 0) throw new CommandError('port 0 names no gateway: pass its address with --url')
  const host = ANY_ADDRESS[settings.host] ?? settings.host
  return `http://${host.includes(':') ? `[${host}]` : host}:${port}`
}

/** Addresses to listen on that are none to call. */
const ANY_ADDRESS: Readonly<Record<string, string>> = { '0.0.0.0': '127.0.0.1', '::': '::1', '': '127.0.0.1' }

function checkUrl(text: string): ApiTarget['url'] {
  const url = URL.canParse(text) ? new URL(text) : null
  if (url === null || !/^https?:$/.test(url.protocol) || url.username !== '' || url.search !== '' || url.hash !== '')
    throw new UsageError(
      `--url must be an address such as http://127.0.0.1:8080, without a name, query or fragment, got ${JSON.stringify(text)}`,
    )
  return url.href.replace(/\/+$/, '')
}
