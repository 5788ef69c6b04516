/**
 * Load whose every answer is checked: each request carries a token, and its answer must carry the same one, once, whole.
 *
 *   const load = startLoad(port, { connections: 16, paths: ['/js', '/py'] })
 *   ...
 *   const result = await load.stop()      // { answered, failed, crossed, malformed, unanswered, hung }
 */

import { connect, type Socket } from 'node:net'

export interface LoadOptions {
  connections: number
  paths: readonly string[]
  /** Requests in all; without end when absent. */
  requests?: number
  /** Body of every so many-th request, bytes. */
  bodyBytes?: number
  /** Ms after which a request without an answer counts as hung. */
  hungMs?: number
  /** Looks at a good answer. @returns a problem, or null */
  check?: (path: string, answer: { body: Record<string, unknown>; headers: string }) => string | null
}

export interface LoadResult {
  /** 200 with the right token. */
  answered: number
  /** By status. */
  failed: Map<number, number>
  crossed: number
  malformed: number
  /** Sent, and the connection ended without an answer. */
  unanswered: number
  hung: number
  /** Connections that were refused. */
  refused: number
  problems: string[]
  latenciesMs: number[]
}

export interface Load {
  readonly result: LoadResult
  /** Sends nothing more and waits for what is open. */
  stop: () => Promise<LoadResult>
  /** Resolves when every connection has ended: all requests done, or refused. */
  ended: Promise<LoadResult>
}

let loadNumber = 0

export function startLoad(port: number, options: LoadOptions): Load {
  const result: LoadResult = {
    answered: 0,
    failed: new Map(),
    crossed: 0,
    malformed: 0,
    unanswered: 0,
    hung: 0,
    refused: 0,
    problems: [],
    latenciesMs: [],
  }
  const run = ++loadNumber
  const state = { next: 0, isStopping: false }
  const limit = options.requests ?? Number.POSITIVE_INFINITY
  const clients = Array.from({ length: options.connections }, () => runClient(port, options, result, state, run, limit))
  const ended = Promise.all(clients).then(() => result)
  return {
    result,
    ended,
    stop: () => {
      state.isStopping = true
      return ended
    },
  }
}

interface LoadState {
  next: number
  isStopping: boolean
}

async function runClient(
  port: number,
  options: LoadOptions,
  result: LoadResult,
  state: LoadState,
  run: number,
  limit: number,
): Promise<void> {
  let socket: Socket | null = null
  while (!state.isStopping && state.next < limit) {
    if (socket === null) {
      socket = await open(port)
      if (socket === null) {
        result.refused += 1
        return
      }
    }
    const number = state.next++
    const path = options.paths[number % options.paths.length]!
    const token = `t${run}-${number}`
    const isKept = await exchange(socket, path, token, number, options, result)
    if (!isKept) {
      socket.destroy()
      socket = null
    }
  }
  socket?.destroy()
}

function open(port: number): Promise<Socket | null> {
  return new Promise(resolve => {
    const socket = connect({ port, host: '127.0.0.1', noDelay: true }, () => {
      socket.removeAllListeners('error')
      socket.on('error', () => {})
      resolve(socket)
    })
    socket.once('error', () => resolve(null))
  })
}

/** @returns whether the connection may be used again */
function exchange(
  socket: Socket,
  path: string,
  token: string,
  number: number,
  options: LoadOptions,
  result: LoadResult,
): Promise<boolean> {
  const hasBody = options.bodyBytes !== undefined && number % 4 === 0
  const body = hasBody ? token.padEnd(options.bodyBytes!, '.') : ''
  const head = `${hasBody ? 'POST' : 'GET'} ${path}?token=${token} HTTP/1.1\r\nHost: load\r\nX-Token: ${token}\r\n`
  return new Promise(resolve => {
    const startedAt = performance.now()
    let text = ''
    const timer = setTimeout(() => {
      result.hung += 1
      result.problems.push(`hung: ${path} ${token} ${JSON.stringify(text.slice(0, 200))}`)
      finish(false)
    }, options.hungMs ?? 30_000)
    const finish = (isKept: boolean): void => {
      clearTimeout(timer)
      socket.removeListener('data', onData)
      socket.removeListener('close', onClose)
      resolve(isKept)
    }
    const onClose = (): void => {
      if (text === '') result.unanswered += 1
      else result.malformed += 1
      result.problems.push(
        `${text === '' ? 'unanswered' : 'cut'}: ${path} ${token} ${JSON.stringify(text.slice(0, 200))}`,
      )
      finish(false)
    }
    const onData = (chunk: Buffer): void => {
      text += chunk.toString('latin1')
      const end = text.indexOf('\r\n\r\n')
      if (end === -1) return
      const headers = text.slice(0, end)
      const length = Number(/\r\ncontent-length: (\d+)/i.exec(headers)?.[1] ?? 0)
      if (text.length < end + 4 + length) return
      result.latenciesMs.push(performance.now() - startedAt)
      judge(headers, text.slice(end + 4), length, path, token, options, result)
      finish(!/\r\nconnection: close/i.test(headers) && text.length === end + 4 + length)
    }
    socket.on('data', onData)
    socket.once('close', onClose)
    socket.write(`${head}${hasBody ? `Content-Length: ${body.length}\r\n` : ''}\r\n${body}`)
  })
}

function judge(
  headers: string,
  body: string,
  length: number,
  path: string,
  token: string,
  options: LoadOptions,
  result: LoadResult,
): void {
  const status = Number(/^HTTP\/1\.1 (\d{3}) /.exec(headers)?.[1] ?? 0)
  const bad = (kind: 'crossed' | 'malformed', why: string): void => {
    result[kind] += 1
    result.problems.push(`${kind}: ${path} ${token}: ${why}: ${JSON.stringify((headers + body).slice(0, 300))}`)
  }
  let fields: Record<string, unknown>
  try {
    if (status === 0 || body.length !== length) throw new Error('not one whole answer')
    fields = JSON.parse(body)
  } catch (error) {
    bad('malformed', (error as Error).message)
    return
  }
  if (status !== 200) {
    result.failed.set(status, (result.failed.get(status) ?? 0) + 1)
    if (typeof fields.error !== 'string') bad('malformed', 'an error without its text')
    return
  }
  const header = /\r\nx-token: (\S+)/i.exec(headers)?.[1]
  if (fields.token !== token || header !== token) {
    bad('crossed', `token ${String(fields.token)}, header ${header}`)
    return
  }
  const problem = options.check?.(path, { body: fields, headers }) ?? null
  if (problem !== null) bad('crossed', problem)
  else result.answered += 1
}

/** Handlers of every language that answer with the token of their request; `stamp` tells one version from another. */
export function tokenHandler(extension: 'js' | 'ts' | 'py' | 'php' | 'lua', stamp: string): string {
  switch (extension) {
    case 'js':
      return `const a = '${stamp}'
export const handler = event => ({ status: 200, headers: { 'x-token': event.headers['x-token'] }, body: { token: event.query.token, a, b } })
const b = '${stamp}'
`
    case 'ts':
      return `const a: string = '${stamp}'
export const handler = async (event: { headers: Record<string, string>; query: Record<string, string> }) => ({
  status: 200, headers: { 'x-token': event.headers['x-token'] }, body: { token: event.query.token, a, b },
})
const b: string = '${stamp}'
`
    case 'py':
      return `a = '${stamp}'
def handler(event):
    return {'status': 200, 'headers': {'x-token': event['headers']['x-token']}, 'body': {'token': event['query']['token'], 'a': a, 'b': b}}
b = '${stamp}'
`
    case 'php':
      return `<?php
const A = '${stamp}';
function handler($event) {
  return ['status' => 200, 'headers' => ['x-token' => $event['headers']['x-token']], 'body' => ['token' => $event['query']['token'], 'a' => A, 'b' => B]];
}
const B = '${stamp}';
`
    case 'lua':
      return `local a, b = '${stamp}', nil
function handler(event)
  return { status = 200, headers = { ['x-token'] = event.headers['x-token'] }, body = { token = event.query.token, a = a, b = b } }
end
b = '${stamp}'
`
  }
}
