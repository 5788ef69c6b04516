/** `fngw dev` without `--native`: the same tree in a container, where an image is named. Owner: §1, page bin/container. */

import { randomBytes } from 'node:crypto'
import net, { type AddressInfo } from 'node:net'
import { homedir } from 'node:os'
import { dirname, resolve } from 'node:path'
import { checkRoot, loadSettings } from '../lib/config/project-file.ts'
import { readSecrets } from '../lib/config/setting-checks.ts'
import { type GatewayOptions, SettingsError } from '../lib/index.ts'
import { type ContainerClient, findClient } from './container-client.ts'
import { type ContainerFacts, planContainer } from './container-plan.ts'
import { DevContainer } from './container-run.ts'
import { listDeclaredVariables } from './declared-env.ts'
import { type KeyInput, followKeys } from './hot-keys.ts'
import { openDocs, openPage } from './open-url.ts'
import type { Outside } from './outside.ts'
import { hasColour, type Output } from './output.ts'
import { announceGateway } from './running-gateways.ts'
import { followSignals } from './stop-signals.ts'
import { CommandError } from './usage-error.ts'

interface ContainerModeOptions {
  gateway: GatewayOptions
  json: boolean
  open: boolean
  output: Output
  /** How `fngw` is typed here. */
  program: string
  /** The functions root as it was typed; null for none. */
  dir: string | null
  terminal: { input: KeyInput } | null
}

type Loaded = ReturnType<typeof loadSettings>

/** Ports tried after a busy default one. */
const NEXT_PORTS = 20
/** Milliseconds over the gateway's own limits in which its container has to end. */
const STOP_GRACE_MS = 10_000
/** The line by which a program recognises that the gateway is ready. */
const READY = /^ready http|^\{"event":"ready"/

/**
 * Serves in a container of the image of the settings until a signal; resolves with the exit code.
 * @throws CommandError when it cannot start; SettingsError
 */
export async function serveInContainer(options: ContainerModeOptions): Promise<number> {
  const { gateway } = options
  const { env = {}, cwd = process.cwd(), flags = {}, defaults = {}, project } = gateway
  const loaded = loadSettings({ env, cwd, flags, defaults, explicit: project?.explicit ?? null })
  const { runtimeImage: image, binaries } = loaded.settings
  if (image === null) throw new CommandError('no image is named: give --runtime-image')
  checkSettings(loaded)
  const client = await findClient(binaries.docker ?? null, env)
  if (Array.isArray(client)) throw new CommandError(toNoClientText(client, image, loaded, options))
  return serve({ ...options, loaded, image, client, cwd })
}

/** Checked like in the gateway; the rest is checked and reported inside the container. */
function checkSettings(loaded: Loaded): void {
  const { problems } = readSecrets(loaded)
  const all = [...problems, ...checkRoot(loaded)]
  if (all.length > 0) throw new SettingsError(all)
}

function toNoClientText(
  problems: readonly string[],
  image: string,
  { sources }: Loaded,
  { output, program, dir }: ContainerModeOptions,
): string {
  const native = [program, 'dev', ...(dir === null ? [] : [dir]), '--native'].join(' ')
  return [
    `nothing runs containers here, and ${sources.runtimeImage!.name} asks for one of ${image}`,
    ...problems.map(problem => `  ${output.clean(problem)}`),
    '  fix: start docker or podman, or name the client with FN_DOCKER_BIN',
    `  without a container: ${native}`,
  ].join('\n')
}

interface Serving extends ContainerModeOptions {
  loaded: Loaded
  image: string
  client: ContainerClient
  cwd: string
}

async function serve(serving: Serving): Promise<number> {
  const { gateway, loaded, image, client, output, terminal, json, open } = serving
  const { settings } = loaded
  const ports = await findPorts(settings, output)
  const outside: Outside = {
    url: toUrl(settings.host, ports.public),
    control: ports.control === null ? null : toUrl(settings.host, ports.control),
    pid: process.pid,
    program: serving.program,
    keys: terminal !== null && !json,
  }
  const name = `fngw-dev-${process.pid}-${randomBytes(4).toString('hex')}`
  const plan = planContainer(toFacts(serving, { name, outside, ports }))
  output.note(`container mode: ${image} as ${name}, by ${client.program}`)
  let forget = (): void => {}
  const container = new DevContainer({
    program: client.program,
    name,
    env: { ...gateway.env, ...plan.env },
    stdout: process.stdout,
    stderr: process.stderr,
    graceMs: settings.shutdownTimeoutMs + settings.shutdownDelayMs + STOP_GRACE_MS,
    onLine: line => {
      if (!READY.test(line)) return
      forget = announceGateway(settings.functionsRoot, outside)
      if (open) openPage(outside.url, line => output.note(line))
    },
  })
  const signals = followSignals(gateway.env ?? {}, code => void container.kill().finally(() => process.exit(code)))
  void signals.first.then(() => container.stop())
  const stopKeys = outside.keys ? followContainerKeys(terminal!.input, container, outside, output) : () => {}
  try {
    await container.create(plan.args)
    return await container.start()
  } finally {
    stopKeys()
    forget()
    await container.remove()
    signals.forget()
  }
}

function toFacts(
  { gateway, loaded, image, client, cwd, json }: Serving,
  made: Pick<ContainerFacts, 'name' | 'outside' | 'ports'>,
): ContainerFacts {
  const { settings, sources, configFile, envDir } = loaded
  const { env = {}, flags = {}, project } = gateway
  const config = project?.explicit ?? null
  const uid = process.getuid?.()
  return {
    ...made,
    ...{ client, image, settings, sources, cwd, flags, env, json },
    home: homedir(),
    projectDir: configFile === null ? null : dirname(configFile),
    declared: listDeclaredVariables(settings.functionsRoot, envDir),
    user: uid === undefined ? null : { uid, gid: process.getgid!() },
    timezone: Intl.DateTimeFormat().resolvedOptions().timeZone,
    hasColour: hasColour(env, process.stderr.isTTY === true),
    config: config === null ? null : resolve(cwd, config),
  }
}

function toUrl(host: string, port: number): string {
  return `http://${host.includes(':') ? `[${host}]` : host}:${port}`
}

class BusyPortError extends CommandError {}

/** Ports that are free now, as the gateway itself would look for them. */
async function findPorts(
  { host, port, portExplicit, controlPort }: Loaded['settings'],
  output: Output,
): Promise<ContainerFacts['ports']> {
  const control = controlPort === null ? null : await findPort(host, controlPort, '--control-port', null)
  for (let wanted = port; ; wanted++) {
    try {
      return { public: await findPort(host, wanted, '--port', control), control }
    } catch (error) {
      if (!(error instanceof BusyPortError) || portExplicit || wanted >= port + NEXT_PORTS) throw error
      output.note(`port ${wanted} is in use, trying ${wanted + 1}`)
    }
  }
}

/** @param taken - a port that is wanted for something else and not listened on yet */
async function findPort(host: string, port: number, flag: string, taken: number | null): Promise<number> {
  try {
    const found = port === taken ? null : await tryPort(host, port)
    if (found !== null && found !== taken) return found
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code !== 'EADDRINUSE') throw new CommandError(`cannot listen on ${host}:${port}: ${message}`)
  }
  const text = `${host}:${port} is in use: stop the program that listens there, or choose another port with ${flag}`
  throw new BusyPortError(text)
}

function tryPort(host: string, port: number): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = net.createServer()
    server.once('error', reject)
    server.listen(port, host, () => {
      const { port: found } = server.address() as AddressInfo
      server.close(() => resolve(found))
    })
  })
}

/** Keys that are for the gateway go to it; the browser, the terminal and the end are this process's. */
function followContainerKeys(
  input: KeyInput,
  container: DevContainer,
  { url, control }: Outside,
  output: Output,
): () => void {
  const hasDocs = async (): Promise<boolean> => (await fetch(`${url}/docs`)).ok
  return followKeys(input, {
    console: () => openPage(`${control ?? url}/console`, line => output.note(line)),
    docs: () => void openDocs(url, hasDocs(), line => output.note(line)).catch(() => {}),
    reload: () => container.send('r'),
    routes: () => container.send('l'),
    clear: () => output.clear(),
  })
}
