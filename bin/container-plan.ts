/**
 * How container mode starts its container: folders, port, user and variables as arguments of the client. No value of a variable is
 * an argument: every user of the machine can read those. Page: bin/container.
 */

import { dirname, isAbsolute, relative, sep } from 'node:path'
import { toSecretFiles } from '../lib/config/setting-checks.ts'
import type { Settings, SettingSource } from '../lib/config/settings.ts'
import { BINARY_ENV, SETTING_OPTIONS, type SettingOption } from '../lib/config/setting-options.ts'
import { isFunctionHostVariable } from '../lib/core/host.ts'
import type { ContainerClient, Env } from './container-client.ts'
import type { Outside } from './outside.ts'
import { CommandError } from './usage-error.ts'

/** Where the gateway listens in its container. */
const INNER_PORT = 8080
const INNER_CONTROL_PORT = 8081
/** Paths that a folder of this machine must not hide. */
const PLACES_OF_IMAGE = ['/app', '/bin', '/dev', '/etc', '/lib', '/lib64', '/proc', '/sbin', '/sys', '/usr']
const PROXIES = /^(?:https?|all|no)_proxy$/i
const LANGUAGE = /^(?:LANG|LANGUAGE|LC_[A-Z]+)$/
/** Of this machine: they mean nothing in the container, or the plan sets them. */
const OF_THIS_MACHINE: ReadonlySet<string> = new Set<string>([
  ...['host', 'port', 'controlPort', 'functionsRoot', 'runtimeImage'].flatMap(name => optionOf(name).env),
  ...Object.values(BINARY_ENV),
])

export interface ContainerFacts {
  client: Pick<ContainerClient, 'ownership'>
  name: string
  image: string
  settings: Settings
  sources: Readonly<Record<string, SettingSource>>
  /** Folder of the project file; null where there is none. */
  projectDir: string | null
  cwd: string
  /** Of the user's home. */
  home: string
  /** As typed, by setting name. */
  flags: Readonly<Record<string, unknown>>
  /** Variables of this process. */
  env: Env
  /** Names of variables that files of the tree declare. */
  declared: ReadonlySet<string>
  /** Null where users have no number. */
  user: { uid: number; gid: number } | null
  timezone: string
  /** True where a person sees colours. */
  hasColour: boolean
  json: boolean
  /** Value of `--config`, full path. */
  config: string | null
  outside: Outside
  ports: { public: number; control: number | null }
}

interface ContainerPlan {
  /** Of `<client> create`. */
  args: string[]
  /** Variables for the container, to be set in the client's environment. */
  env: Record<string, string>
}

/** @throws CommandError for a folder that cannot be given to a container */
export function planContainer(facts: ContainerFacts): ContainerPlan {
  const { name, image, settings, outside, json, config, cwd } = facts
  const env = toInnerEnv(facts)
  const mounts = toMounts(facts)
  const isSeen = mounts.some(({ path, isFile }) => !isFile && isWithin(cwd, path))
  const args = [
    // No log on disk: its output goes through this process.
    ...['--rm', '--interactive', '--name', name, '--log-driver=none', '--no-healthcheck'],
    ...toUserArgs(facts),
    ...toPublishArgs(facts),
    ...mounts.flatMap(mount => ['--mount', toMountText(mount)]),
    ...['--workdir', isSeen ? cwd : settings.functionsRoot],
    ...Object.keys(env).flatMap(variable => ['--env', variable]),
    image,
    ...['dev', '--native', '--outside', JSON.stringify(outside)],
    ...(json ? ['--json'] : []),
    ...(config === null ? [] : ['--config', config]),
    settings.functionsRoot,
  ]
  return { args, env }
}

/** Files made in the folders belong to who started it. */
function toUserArgs({ client, user }: ContainerFacts): string[] {
  // Labels of SELinux would have to be changed on the user's own files.
  const security = ['--security-opt=label=disable', '--security-opt=no-new-privileges']
  if (user === null) return security
  if (client.ownership === 'root-is-user') return [...security, '--user=0:0']
  const keep = client.ownership === 'keep-id' ? ['--userns=keep-id'] : []
  // Only root has a use for capabilities: to reach files of others, and to give functions users of their own.
  const powers = user.uid === 0 ? [] : ['--cap-drop=all']
  return [...security, ...keep, ...powers, `--user=${user.uid}:${user.gid}`]
}

function toPublishArgs({ settings, ports }: ContainerFacts): string[] {
  const host = settings.host.includes(':') ? `[${settings.host}]` : settings.host
  // Clients require an address, not a name.
  const at = host === 'localhost' ? '127.0.0.1' : host
  const publish = (outer: number, inner: number) => `--publish=${at}:${outer}:${inner}`
  return [
    publish(ports.public, INNER_PORT),
    ...(ports.control === null ? [] : [publish(ports.control, INNER_CONTROL_PORT)]),
  ]
}

interface Mount {
  /** The same inside and outside, so that every message names the file that the user knows. */
  path: string
  readonly: boolean
  isFile: boolean
}

function toMounts({ settings, projectDir, cwd, home }: ContainerFacts): Mount[] {
  const { functionsRoot, schedulerStatePath, runtimeSockets } = settings
  const folder = (path: string): Mount => ({ path, readonly: false, isFile: false })
  const secret = (path: string): Mount => ({ path, readonly: true, isFile: true })
  // A home holds more than a project, such as keys.
  const isProject = isWithin(functionsRoot, cwd) && cwd !== home && cwd !== '/'
  const sockets = Object.values(runtimeSockets).flatMap(uris => uris ?? [])
  const wanted = [
    ...(projectDir === null ? [] : [folder(projectDir)]),
    ...(projectDir === null && isProject ? [folder(cwd)] : []),
    folder(functionsRoot),
    ...(schedulerStatePath === null ? [] : [folder(dirname(schedulerStatePath))]),
    ...sockets.flatMap(uri => (uri.startsWith('unix:') ? [folder(dirname(uri.slice('unix:'.length)))] : [])),
    ...toSecretFiles(settings).map(secret),
  ]
  const mounts: Mount[] = []
  for (const one of wanted) {
    const hidden = PLACES_OF_IMAGE.find(place => isWithin(place, one.path))
    if (hidden !== undefined)
      throw new CommandError(
        `the folder ${one.path} cannot be given to the container: ${hidden} is the image's own there; move the project, or use --native`,
      )
    if (!mounts.some(({ path, isFile }) => !isFile && isWithin(one.path, path))) mounts.push(one)
  }
  return mounts
}

/** The client reads it as one line of comma-separated values. */
function toMountText({ path, readonly }: Mount): string {
  const fields = ['type=bind', `source=${path}`, `target=${path}`, ...(readonly ? ['readonly'] : [])]
  return fields.map(field => (/[",\n]/.test(field) ? `"${field.replaceAll('"', '""')}"` : field)).join(',')
}

function isWithin(path: string, folder: string): boolean {
  const way = relative(folder, path)
  return way === '' || (way !== '..' && !way.startsWith(`..${sep}`) && !isAbsolute(way))
}

function toInnerEnv(facts: ContainerFacts): Record<string, string> {
  const { settings, sources, flags, ports, timezone, hasColour } = facts
  const env: Record<string, string> = {}
  for (const [name, value] of Object.entries(facts.env))
    if (value !== undefined && isHandedOn(name, facts.declared)) env[name] = value
  for (const [name, value] of Object.entries(flags)) setByFlag(env, optionOf(name), value)
  // A relative path is one of this process's folder; those of files are relative to their file, which is inside, too.
  for (const name of Object.keys(SETTING_OPTIONS)) {
    const { locate, env: variables } = optionOf(name)
    const source = sources[name]
    const [variable] = variables
    if (locate === undefined || variable === undefined || env[variable] === undefined) continue
    if (source?.source === 'flag' || source?.name === variable) env[variable] = toText(settings[name as keyof Settings])
  }
  return {
    ...env,
    FN_HOST: '0.0.0.0',
    FN_PORT: String(INNER_PORT),
    ...(ports.control === null ? {} : { FN_CONTROL_PORT: String(INNER_CONTROL_PORT) }),
    TZ: timezone,
    FORCE_COLOR: hasColour ? '1' : '0',
  }
}

function isHandedOn(name: string, declared: ReadonlySet<string>): boolean {
  // A client takes some signs for patterns of names.
  if (!/^\w+$/.test(name) || OF_THIS_MACHINE.has(name)) return false
  if (name.startsWith('FN_') || SETTING_VARIABLES.has(name) || PROXIES.test(name) || LANGUAGE.test(name)) return true
  return declared.has(name) && !isFunctionHostVariable(name)
}

const SETTING_VARIABLES: ReadonlySet<string> = new Set(Object.keys(SETTING_OPTIONS).flatMap(name => optionOf(name).env))

/** Flags override variables. */
function setByFlag(env: Record<string, string>, { env: variables }: SettingOption<unknown>, value: unknown): void {
  const [first, ...aliases] = variables
  if (first === undefined || OF_THIS_MACHINE.has(first)) return
  for (const alias of aliases) delete env[alias]
  env[first] = toText(value)
}

function toText(value: unknown): string {
  if (typeof value === 'boolean') return value ? '1' : '0'
  return typeof value === 'object' ? JSON.stringify(value) : String(value)
}

function optionOf(name: string): SettingOption<unknown> {
  return (SETTING_OPTIONS as unknown as Record<string, SettingOption<unknown>>)[name]!
}
