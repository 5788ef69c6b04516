/** Does what a page says, from its first block to its last, in a folder of its own. Owner: page docs. */

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, cpSync, mkdirSync, symlinkSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { FNGW, type RunningCli, startCli, toEnv } from '../helpers/cli.ts'
import { shareCrates } from '../helpers/compiled.ts'
import { type DocBlock, isAsShown, readSession } from './blocks.ts'
import { findCheck } from './checks.ts'
import { makeTree } from '../helpers/tree.ts'

const PROJECT = fileURLToPath(new URL('../..', import.meta.url))

/** Where pages say that the gateway listens. */
const SHOWN_ADDRESS = /(127\.0\.0\.1|localhost):8080/g
/** `NAME=value fngw dev ...`: a line that starts the gateway. */
const START = /^((?:\w+=\S+ )*)(?:npx )?fngw ((?:dev|run)\b.*)$/

/** Where pages say that a daemon of a runtime listens. */
const DAEMON_PORT = /(?<=\b(?:tcp|tls):\/\/127\.0\.0\.1:)\d+/g
/** `NAME=value fngw daemon ...`: a line that starts one. */
const DAEMON = /^((?:\w+=\S+ )*)(?:npx )?fngw (daemon\b.*)$/

const FUNCTIONS = 'functions/'
/** Commands that name a function. */
const NAMED = /\bfngw (?:invoke|jobs create|schedule run) (?=\w)/g

/** Milliseconds that a request may take: a build on a busy machine, with `npm run test:registry` after downloads. */
const WAIT_MS = process.env.FNGW_TEST_REGISTRY === '1' ? 900_000 : 150_000
/** Of the gateway of a page with tabs. */
const TAB_SETTINGS = {
  FN_RUNTIMES: 'node,python,php,lua,go,rust',
  FN_DEPS_WAIT_MS: String(WAIT_MS),
  FN_GO_BUILD_TIMEOUT_S: String(WAIT_MS / 1000),
  FN_RUST_BUILD_TIMEOUT_S: String(WAIT_MS / 1000),
}

/** What came of a block: a failure, why it was not run, or neither. */
export interface DocResult {
  failure?: string
  notRun?: string
}

export interface DocSessionOptions {
  /** A folder of the checkout that becomes the folder of the page. */
  app?: string
  /** Of the tabs of the page; each has the page's functions in a separate folder, below one gateway. */
  languages?: readonly string[]
  /** Where servers of the test listen and its files are, by the addresses and folders that the page shows. */
  addresses?: Readonly<Record<string, string>>
  /** Packages of the checkout that the functions of the page find, so that none is downloaded. */
  packages?: readonly string[]
}

export class DocSession {
  readonly #home = makeTree({
    'bin/fngw': `#!/bin/sh\nexec ${FNGW.map(word => `"${word}"`).join(' ')} "$@"\n`,
    'bin/npx': '#!/bin/sh\nexec "$@"\n',
    // A page that shows a request shows one that succeeds, unless it shows the refusal too.
    'strict/.curlrc': 'silent\nshow-error\nfail-with-body\n',
    'shown/.curlrc': 'silent\n',
    'project/': '',
  })
  readonly #folder = this.#home.path('project')
  #gateway: RunningCli | null = null
  #restart: (() => Promise<RunningCli>) | null = null
  #args: string[] = []
  #stale: 'settings' | 'functions' | null = null
  /** Languages of the tabs that were read last. */
  #tabs: string[] = []
  #isInTabs = false
  readonly #daemons: RunningCli[] = []
  /** Ports where daemons really listen, by those that the page shows. */
  readonly #daemonPorts = new Map<string, string>()

  readonly #languages: readonly string[]
  readonly #addresses: Readonly<Record<string, string>>

  constructor({ app, languages = [], addresses = {}, packages = [] }: DocSessionOptions = {}) {
    if (app !== undefined) cpSync(join(PROJECT, app), this.#folder, { recursive: true })
    this.#languages = languages
    this.#addresses = addresses
    for (const name of packages) {
      const link = join(this.#folder, 'node_modules', name)
      mkdirSync(dirname(link), { recursive: true })
      symlinkSync(join(PROJECT, 'node_modules', name), link)
    }
    for (const name of ['fngw', 'npx']) chmodSync(this.#home.path(`bin/${name}`), 0o755)
  }

  /** The gateway that the page started last. */
  get gateway(): RunningCli {
    if (this.#gateway === null) throw new Error('the page has not started a gateway')
    return this.#gateway
  }

  get folder(): string {
    return this.#folder
  }

  /** Runs a block, or reads it where the page says why it is not run. */
  async follow(block: DocBlock): Promise<DocResult> {
    const [kind, value] = splitMarker(block.marker)
    const check = findCheck(block.language)
    if (check === null) return { failure: `nobody reads the language "${block.language}": see test/docs/checks.ts` }
    const fault = check(block.text)
    if (fault !== null) return { failure: fault }
    if (kind === 'not run') return { notRun: value }
    if (block.isTab && !this.#languages.includes(block.language))
      return { notRun: `${block.language} is not installed` }
    if (block.isTab) this.#tabs = this.#isInTabs ? [...this.#tabs, block.language] : [block.language]
    this.#isInTabs = block.isTab
    if (kind === 'file') return this.#write(value, block.text, block.isTab ? [block.language] : this.#languages)
    if (kind === 'serves') await this.#serve(value)
    if (kind === 'environment') await this.#start(readSettings(value), this.#args)
    if (block.language === 'console') return this.#compareTabs(block.text)
    if (block.language !== 'sh')
      return { failure: 'a comment before it has to say which file it is, or why it is not run' }
    return this.#runLines(block.text)
  }

  async end(): Promise<void> {
    await this.#stop()
    for (const { child, ended } of this.#daemons) {
      child.kill('SIGTERM')
      await ended
    }
    this.#home.cleanup()
  }

  /** @param languages - those whose functions it belongs to */
  #write(file: string, text: string, languages: readonly string[]): DocResult {
    const isOfFunctions = languages.length > 0 && file.startsWith(FUNCTIONS)
    const paths = isOfFunctions
      ? languages.map(one => `${FUNCTIONS}${toFolder(one)}/${file.slice(FUNCTIONS.length)}`)
      : [file]
    for (const [i, path] of paths.entries())
      this.#home.write({ [join('project', path)]: `${this.#toReal(text, isOfFunctions ? languages[i] : undefined)}\n` })
    // The gateway sees an edit by itself; a page that goes on at once has to be sure that it did. It reads its settings once.
    this.#stale = this.#stale === 'settings' || /^\w+\.json$/.test(file) ? 'settings' : 'functions'
    return {}
  }

  async #serve(example: string): Promise<void> {
    cpSync(join(PROJECT, example), join(this.#folder, example), { recursive: true })
    await this.#start({}, ['dev', example, '--native'])
  }

  async #runLines(text: string): Promise<DocResult> {
    const lines = text.split('\n').map(line => line.replace(/\s+# .*$/, ''))
    const at = lines.findIndex(line => START.test(line) || DAEMON.test(line))
    const script = (at === -1 ? lines : lines.slice(0, at)).join('\n')
    const { status, output, stderr } = await this.#bash(`set -e\n${script}`, 'strict')
    if (status !== 0) return { failure: `exit code ${status}\n${output}\n${stderr}` }
    if (at === -1) return {}
    const daemon = DAEMON.exec(lines[at]!)
    const [, settings, command] = daemon ?? START.exec(lines[at]!)!
    const words = command!.trim().split(/\s+/)
    if (daemon === null) await this.#start(readSettings(settings!), words)
    else await this.#startDaemon(readSettings(settings!), words)
    // What a page shows below the start is for another terminal.
    return this.#runLines(lines.slice(at + 1).join('\n'))
  }

  /** On a page with tabs what is shown holds for each language of the tabs above it. */
  async #compareTabs(text: string): Promise<DocResult> {
    if (this.#tabs.length === 0) return this.#compare(text)
    for (const language of this.#tabs) {
      const { failure } = await this.#compare(text, language)
      if (failure !== undefined) return { failure: `${language}: ${failure}` }
    }
    return {}
  }

  async #compare(text: string, language: string | null = null): Promise<DocResult> {
    const shown = readSession(text)
    // One shell for all, so that a variable that a line sets is there for the next.
    const script = shown.map(({ command }) => `${command}\nprintf '\\036'`).join('\n')
    const folder = language === null ? '' : toFolder(language)
    const ofLanguage =
      language === null ? script : script.replaceAll(SHOWN_ADDRESS, `$&/${folder}`).replaceAll(NAMED, `$&${folder}/`)
    const { output, stderr } = await this.#bash(ofLanguage, 'shown')
    const printed = (language === null ? output : output.replaceAll(`${folder}/`, '')).split('\x1e')
    const wrong = shown.findIndex((one, i) => !isAsShown(printed[i] ?? '', one.output))
    if (wrong === -1) return {}
    const one = shown[wrong]!
    return { failure: `$ ${one.command}\nshown: ${one.output}\nprinted: ${printed[wrong]}\n${stderr}` }
  }

  async #bash(script: string, curl: string): Promise<{ status: number | null; output: string; stderr: string }> {
    if (this.#stale !== null && this.#restart !== null) await this.#renew(this.#stale, this.#restart)
    const address = this.#gateway?.url.slice('http://'.length)
    const child = spawn('bash', ['-c', this.#toServers(address ? script.replace(SHOWN_ADDRESS, address) : script)], {
      cwd: this.#folder,
      env: {
        ...toEnv({ PATH: `${this.#home.path('bin')}:${process.env.PATH}`, CURL_HOME: this.#home.path(curl) }),
        ...(address !== undefined && { FN_PORT: address.split(':')[1] }),
      },
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: WAIT_MS + 10_000,
    })
    const [stdout, stderr] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')])
    const status = child.exitCode
    // Lines of an HTTP head end in CR LF.
    const output = stdout.replaceAll('\r\n', '\n')
    return { status, output: address ? output.replaceAll(address, '127.0.0.1:8080') : output, stderr }
  }

  async #start(env: Record<string, string>, args: string[]): Promise<void> {
    this.#args = args
    const real = Object.entries(env).map(([name, value]) => [name, this.#toServers(value)])
    const all = { ...shareCrates(), ...(this.#languages.length > 0 && TAB_SETTINGS), ...Object.fromEntries(real) }
    await this.#open(() => startCli([...args, '--port', '0'], { cwd: this.#folder, env: all }))
  }

  /** It lives as long as the page is followed. */
  async #startDaemon(env: Record<string, string>, words: string[]): Promise<void> {
    const [shown] = words.join(' ').match(DAEMON_PORT) ?? []
    const args = words.map(word => word.replace(DAEMON_PORT, '0'))
    const daemon = await startCli(args, { cwd: this.#folder, env })
    this.#daemons.push(daemon)
    if (shown !== undefined) this.#daemonPorts.set(shown, new URL(daemon.url).port)
  }

  /** @param language - of the functions that an address of the gateway means */
  #toReal(text: string, language?: string): string {
    const { url } = this.#gateway ?? {}
    const ofGateway =
      url === undefined
        ? text
        : text.replace(/http:\/\/127\.0\.0\.1:8080/g, language === undefined ? url : `${url}/${toFolder(language)}`)
    return this.#toServers(ofGateway).replace(DAEMON_PORT, port => this.#daemonPorts.get(port) ?? port)
  }

  #toServers(text: string): string {
    return Object.entries(this.#addresses).reduce((all, [shown, real]) => all.replaceAll(shown, real), text)
  }

  async #open(start: () => Promise<RunningCli>): Promise<void> {
    await this.#stop()
    this.#restart = start
    this.#stale = null
    this.#gateway = await start()
  }

  async #renew(stale: 'settings' | 'functions', restart: () => Promise<RunningCli>): Promise<void> {
    this.#stale = null
    const isReloaded = stale === 'functions' && (await fetch(`${this.#gateway?.url}/_fn/reload`, { method: 'POST' })).ok
    if (!isReloaded) await this.#open(restart)
  }

  async #stop(): Promise<void> {
    this.#gateway?.child.kill('SIGTERM')
    await this.#gateway?.ended
    this.#gateway = null
  }
}

/** A folder named `python` alone would be one for the functions of a runtime. */
function toFolder(language: string): string {
  return `in-${language}`
}

/** `A=1 B=2` */
function readSettings(text: string): Record<string, string> {
  const words = text.split(' ').filter(Boolean)
  return Object.fromEntries(words.map(word => [word.slice(0, word.indexOf('=')), word.slice(word.indexOf('=') + 1)]))
}

function splitMarker(marker: string | null): [kind: string, value: string] {
  if (marker === null) return ['', '']
  const at = marker.indexOf(': ')
  return [marker.slice(0, at), marker.slice(at + 2)]
}
