/** Which running gateway a command calls, by its flags and settings. Owner: page bin/api-client. */

import type { Command } from 'commander'
import { loadSettings } from '../lib/config/project-file.ts'
import { readAdminToken } from '../lib/config/secret-file.ts'
import type { ResolvedSettings } from '../lib/config/settings.ts'
import { SettingsError } from '../lib/index.ts'
import { ApiClient, type ApiTarget } from './api-client.ts'
import { addSettingFlags, toFlags } from './setting-flags.ts'
import { CommandError, UsageError } from './usage-error.ts'

/** Settings that say where the gateway listens. */
const ADDRESS_SETTINGS = ['host', 'port', 'controlPort']

interface ApiFlags {
  url?: string
  tokenFile?: string
  config?: string
}

/** What a command is run with. */
interface Surroundings {
  cwd: string
  env: Readonly<Record<string, string | undefined>>
}

/** Adds `--url`, `--token-file` and the settings of the address. */
export function addApiFlags(command: Command): Command {
  return addTargetFlags(addSettingFlags(command, { defaults: {}, shown: ADDRESS_SETTINGS }))
}

/** Adds `--url` and `--token-file` alone, to a command that has the flags of settings. */
export function addTargetFlags(command: Command): Command {
  return command
    .option('--url <address>', 'Running gateway, such as http://127.0.0.1:8080 (default: by host and port).')
    .option('--token-file <file>', 'File that holds the admin token (default: the variable FN_ADMIN_TOKEN).')
}

/**
 * @param port - `public` calls what everybody may use, also where the control plane has a port of its own
 * @throws UsageError, SettingsError, CommandError when there is no address
 */
export function toApiClient(
  command: Command,
  { cwd, env }: Surroundings,
  port: 'control' | 'public' = 'control',
): ApiClient {
  const { url, tokenFile, config } = command.opts<ApiFlags>()
  const loaded = loadSettings({ env, cwd, flags: toFlags(command), explicit: config ?? null })
  const resolved = withToken(loaded, tokenFile ?? null)
  // An address that was given needs no settings but the token's.
  const problems = resolved.problems.filter(({ name }) => url === undefined || /TOKEN|token/.test(name))
  if (problems.length > 0) throw new SettingsError(problems)
  return new ApiClient({
    url: url === undefined ? toUrl(resolved, port) : checkUrl(url),
    token: resolved.settings.adminToken,
  })
}

/** A file that is named on the command line is stronger than every variable. */
function withToken(resolved: ResolvedSettings, file: string | null): ResolvedSettings {
  if (file === null) return readAdminToken(resolved, resolved.settings.adminTokenFile)
  const sources = { ...resolved.sources, adminTokenFile: { source: 'flag' as const, name: '--token-file' } }
  return readAdminToken({ ...resolved, sources, settings: { ...resolved.settings, adminToken: null } }, file)
}

/** Where a gateway with these settings listens. */
function toUrl({ settings }: ResolvedSettings, wanted: 'control' | 'public'): string {
  const port = (wanted === 'control' ? settings.controlPort : null) ?? settings.port
  if (port === 0)
    throw new CommandError('port 0 is another one at each start: give the address of the gateway with --url')
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
