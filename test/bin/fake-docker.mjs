/**
 * A client of containers that has none: what it is asked for is written down, and a container is a process of this machine that gets
 * the variables that were named, and nothing else. FAKE_DOCKER is the folder of its records.
 */

import { spawn } from 'node:child_process'
import { appendFileSync, existsSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

const folder = process.env.FAKE_DOCKER
const [command, ...args] = process.argv.slice(2)
const pathOf = name => join(folder, `${name}.json`)
const read = name => JSON.parse(readFileSync(pathOf(name), 'utf8'))
const settings = existsSync(join(folder, 'settings')) ? JSON.parse(readFileSync(join(folder, 'settings'), 'utf8')) : {}

/** Whole or not at all: whoever sees it may end this process at once. */
function write(name, container) {
  const path = join(folder, `${process.pid}.part`)
  writeFileSync(path, JSON.stringify(container))
  renameSync(path, pathOf(name))
}

appendFileSync(join(folder, 'calls'), `${JSON.stringify([command, ...args])}\n`)

/** @param {string[]} words */
function create(words) {
  const container = { name: '', env: {}, publish: [], mounts: [], workdir: '/', image: '', args: [], pid: 0 }
  const take = word => (word.includes('=') ? word.slice(word.indexOf('=') + 1) : words.shift())
  for (let word = words.shift(); word !== undefined; word = words.shift()) {
    if (word.startsWith('--name')) container.name = take(word)
    else if (word.startsWith('--env')) {
      const name = take(word)
      container.env[name] = process.env[name]
    } else if (word.startsWith('--publish')) container.publish.push(take(word))
    else if (word.startsWith('--mount')) container.mounts.push(take(word))
    else if (word.startsWith('--workdir')) container.workdir = take(word)
    else if (!word.startsWith('-')) {
      container.image = word
      container.args = words.splice(0)
    }
  }
  if (settings.createError !== undefined) {
    process.stderr.write(`Trying to pull ${container.image}...\n${settings.createError}\n`)
    process.exit(125)
  }
  writeFileSync(join(folder, 'last'), JSON.stringify(container))
  write(container.name, container)
  process.stdout.write('0123456789abcdef\n')
  // As while an image is fetched: until somebody ends it.
  if (settings.hangs === 'create') setInterval(() => {}, 1000)
}

/** @param {string} name */
function start(name) {
  const container = read(name)
  const [[host, port], control] = container.publish.map(text => /^(.*):(\d+):\d+$/.exec(text).slice(1))
  const env = { PATH: process.env.PATH, HOME: process.env.HOME, ...container.env }
  if (env.FN_HOST !== '0.0.0.0') throw new Error('it would listen to nobody outside')
  env.FN_HOST = host
  env.FN_PORT = port
  if (control !== undefined) env.FN_CONTROL_PORT = control[1]
  const command = settings.inside ?? JSON.parse(process.env.FAKE_INSIDE)
  const child = spawn(command[0], [...command.slice(1), ...container.args], {
    env,
    cwd: container.workdir,
    stdio: ['pipe', 'inherit', 'inherit'],
    detached: true,
  })
  // As a daemon does: the end of what is attached is the end of its input, whatever ended it.
  process.stdin.pipe(child.stdin)
  child.stdin.on('error', () => {})
  write(name, { ...container, pid: child.pid })
  child.once('exit', (code, signal) => {
    rmSync(pathOf(name), { force: true })
    process.exit(code ?? (signal === 'SIGKILL' ? 137 : 143))
  })
}

/** @param {string} name */
function kill(name) {
  if (!existsSync(pathOf(name))) process.exit(1)
  const { pid } = read(name)
  if (pid > 0) process.kill(-pid, 'SIGKILL')
}

if (command === 'info') {
  process.stdout.write(`${JSON.stringify(settings.info ?? { ServerVersion: '28.0.0', SecurityOptions: [] })}\n`)
  if (settings.infoError !== undefined) process.stderr.write(`${settings.infoError}\n`)
  process.exitCode = settings.infoCode ?? 0
  if (settings.hangs === 'info') setInterval(() => {}, 1000)
} else if (command === 'create') create(args)
else if (command === 'start') start(args.at(-1))
else if (command === 'kill') kill(args.at(-1))
else if (command === 'rm') {
  if (existsSync(pathOf(args.at(-1)))) kill(args.at(-1))
  rmSync(pathOf(args.at(-1)), { force: true })
} else if (command === 'names') process.stdout.write(readdirSync(folder).join('\n'))
else process.exit(2)
