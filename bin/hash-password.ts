/** `fngw hash-password`: what to keep of the password that people log in to the console with. Owner: page bin/hash-password. */

import { createInterface } from 'node:readline'
import { type Readable, Writable } from 'node:stream'
import { toPasswordHash } from '../lib/config/texts.ts'
import type { Terminal } from './ask.ts'
import { UsageError } from './usage-error.ts'

const MAX_CHARS = 1024

interface PasswordInput {
  stdin: Readable
  /** Null without a terminal: the password is then the only line of standard input. */
  terminal: Terminal | null
}

/**
 * @returns the hash, for FN_CONSOLE_LOGIN_PASSWORD_HASH
 * @throws UsageError when there is no password
 */
export async function hashPassword({ stdin, terminal }: PasswordInput): Promise<string> {
  const password = terminal === null ? await readLine(stdin) : await askTwice(terminal)
  if (password === '' || password.length > MAX_CHARS || /[\u0000-\u001f\u007f]/.test(password))
    throw new UsageError(`a password is one line of 1 to ${MAX_CHARS} characters without control characters`)
  return toPasswordHash(password)
}

/** No flag takes it: other users of the machine see command lines. */
async function readLine(stdin: Readable): Promise<string> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of stdin) {
    chunks.push(Buffer.from(chunk as Uint8Array))
    bytes += (chunk as Buffer).length
    // Longer than any password, whatever follows.
    if (bytes > 8 * MAX_CHARS) break
  }
  return Buffer.concat(chunks)
    .toString('utf8')
    .replace(/\r?\n$/, '')
}

async function askTwice(terminal: Terminal): Promise<string> {
  const { input, output } = terminal
  // What is typed is shown nowhere.
  const nowhere = new Writable({ write: (_chunk, _encoding, done) => done() })
  const reader = createInterface({ input, output: nowhere, terminal: true, historySize: 0 })
  const lines = reader[Symbol.asyncIterator]()
  const ask = async (text: string): Promise<string> => {
    output.write(text)
    const { value, done } = await lines.next()
    output.write('\n')
    if (done === true) throw new UsageError('no password was given')
    return value
  }
  // In raw mode Ctrl+C is a key.
  reader.once('SIGINT', () => reader.close())
  try {
    const password = await ask('Password: ')
    if ((await ask('Once more: ')) === password) return password
    throw new UsageError('these are two passwords')
  } finally {
    reader.close()
  }
}
