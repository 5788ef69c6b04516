/** Real servers for pages whose functions use one. Owner: page docs. */

import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { SMTPServer } from 'smtp-server'
import type { Test } from 'tap'

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
