/** Real servers for pages whose functions use one. Owner: page docs. */

import { type ChildProcessByStdio, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync } from 'node:fs'
import { type AddressInfo, createServer } from 'node:net'
import type { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { SMTPServer } from 'smtp-server'
import type { Test } from 'tap'
import { makeTree } from '../helpers/tree.ts'

export interface MailServer {
  /** Host and port. */
  address: string
  /** Raw messages, in the order in which they came. */
  received: Buffer[]
  /** Refuses the next connection and each second one from then on, as a busy server does. */
  refuseHalf: () => void
}

/** A message as the library of Python reads it. */
const READ_MAIL = `
import json, sys
from email import message_from_binary_file, policy
mail = message_from_binary_file(sys.stdin.buffer, policy=policy.default)
fields = {name: mail.get_all(name) for name in ("From", "To", "Bcc", "Subject", "Message-ID")}
print(json.dumps({**fields, "text": mail.get_content().strip()}, default=str))
`

export function readMail(message: Buffer): Record<string, unknown> {
  const { stdout, stderr } = spawnSync('python3', ['-c', READ_MAIL], { input: message, encoding: 'utf8' })
  if (stdout === '') throw new Error(stderr)
  return JSON.parse(stdout) as Record<string, unknown>
}

export async function startMailServer(t: Test): Promise<MailServer> {
  const received: Buffer[] = []
  let connections = 0
  let isBusy = false
  const server = new SMTPServer({
    disabledCommands: ['STARTTLS', 'AUTH'],
    disableReverseLookup: true,
    onConnect: (_session, callback) => {
      const isRefused = isBusy && connections++ % 2 === 0
      callback(isRefused ? Object.assign(new Error('try again later'), { responseCode: 421 }) : null)
    },
    onData: (stream, _session, callback) => {
      const chunks: Buffer[] = []
      stream.on('data', chunk => chunks.push(chunk))
      stream.on('end', () => {
        received.push(Buffer.concat(chunks))
        callback()
      })
    },
  })
  server.on('error', error => t.comment(error.message))
  server.listen(0, '127.0.0.1')
  await once(server.server, 'listening')
  t.teardown(() => new Promise<void>(resolve => server.close(() => resolve())))
  return {
    address: `127.0.0.1:${(server.server.address() as AddressInfo).port}`,
    received,
    refuseHalf: () => {
      isBusy = true
    },
  }
}

const POSTGRES = '/usr/lib/postgresql'

/** Folder of the newest server of Debian's packages; null without one. */
export function findPostgres(): string | null {
  try {
    const [newest] = readdirSync(POSTGRES).sort((a, b) => Number(b) - Number(a))
    return newest === undefined ? null : `${POSTGRES}/${newest}/bin`
  } catch {
    return null
  }
}

/** A fresh cluster with the user and the database of the page. Resolves with its address. */
export async function startPostgres(t: Test, programs: string): Promise<string> {
  const tree = makeTree({ password: 'for-development', 'data/': '' })
  t.teardown(tree.cleanup)
  const data = tree.path('data')
  // The server refuses to run as root.
  const isRoot = process.getuid?.() === 0
  if (isRoot) spawnSync('chown', ['-R', 'nobody:', tree.root])
  const start = (program: string, args: string[]) => {
    const words = [
      ...(isRoot ? ['setpriv', '--reuid=nobody', '--regid=nogroup', '--clear-groups'] : []),
      program,
      ...args,
    ]
    return spawn(words[0]!, words.slice(1), { cwd: tree.root, stdio: ['ignore', 'ignore', 'pipe'] })
  }
  const options = ['--username=app', '--auth=scram-sha-256', `--pwfile=${tree.path('password')}`, '--no-sync']
  const init = start(`${programs}/initdb`, [...options, '--no-instructions', '--encoding=UTF8', '--locale=C', data])
  const [problem] = await Promise.all([text(init.stderr), once(init, 'close')])
  if (init.exitCode !== 0) throw new Error(problem)

  const address = `127.0.0.1:${await findPort()}`
  const [host, port] = address.split(':')
  const settings = { listen_addresses: host, port, unix_socket_directories: '', fsync: 'off', shared_buffers: '16MB' }
  const words = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])
  const server = start(`${programs}/postgres`, ['-D', data, ...words])
  await waitForLog(t, server, 'database system is ready to accept connections')
  const create = spawnSync('psql', ['-qc', 'CREATE DATABASE app', `postgres://app:for-development@${address}/postgres`])
  if (create.status !== 0) throw new Error(String(create.stderr))
  return address
}

/** A store that speaks the protocol of S3: moto. Resolves with its address. */
export async function startS3(t: Test): Promise<string> {
  const address = `127.0.0.1:${await findPort()}`
  const [host = '', port = ''] = address.split(':')
  const server = spawn('python3', ['-m', 'moto.server', '-H', host, '-p', port], {
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  await waitForLog(t, server, 'Running on http')
  return address
}

/** Resolves when a server has written a text. The server ends with the test. */
async function waitForLog(t: Test, server: ChildProcessByStdio<null, null, Readable>, text: string): Promise<void> {
  const ended = once(server, 'close')
  t.teardown(() => server.kill('SIGINT') && ended)
  await new Promise<void>((resolve, reject) => {
    let log = ''
    server.stderr.on('data', chunk => {
      log += chunk
      if (log.includes(text)) resolve()
    })
    server.on('close', () => reject(new Error(log)))
  })
}

/** Of a server that cannot choose one itself. */
async function findPort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return port
}
