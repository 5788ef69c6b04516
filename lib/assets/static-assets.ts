/**
 * Static files of the mount that the root's config names. Spec: §2.11, page assets/static-assets.
 *
 *   run_worker_first false   file ─► route ─► page of the application ─► 404
 *   run_worker_first true    route ─► file ─► page of the application ─► 404
 */

import { close, fstat, open, read, statSync } from 'node:fs'
import { promisify } from 'node:util'
import type { AssetsMount } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import { GatewayError, orNull, toGatewayError } from '../core/errors.ts'
import { headerOf, toAllow } from '../core/http-text.ts'
import { Semaphore } from '../core/semaphore.ts'
import type { Abandonable, Exchange, Step } from '../http/exchange.ts'
import type { RouteTable } from '../router/route-table.ts'
import { type Asset, type AssetForm, type FileState, isSameState, toForm, toState } from './file.ts'
import {
  type AssetHead,
  chooseForm,
  decide,
  type Decision,
  isNavigation,
  isPagePath,
  readAssetHead,
  toAssetName,
} from './request.ts'
import { AssetNames, AssetStore, MAX_ATTEMPTS, OPEN_FLAGS, toFileTrouble } from './store.ts'

/** Steps of the public walk around the routes. */
interface AssetSteps {
  before: readonly Step[]
  after: readonly Step[]
}

/** Answers from memory that leave together. */
const ANSWERS_AT_ONCE = 8

type Routes = Pick<RouteTable, 'find'>

const INDEX = 'index.html'

/** @param mount - null when no assets are configured: then nothing is done for any request */
export function toAssetSteps(mount: AssetsMount | null, routes: Routes, clock: Clock): AssetSteps {
  if (mount === null) return { before: [], after: [] }
  const assets = new StaticAssets(mount, routes, clock)
  return mount.runWorkerFirst
    ? { before: [], after: [assets.serve, assets.fallBack] }
    : { before: [assets.serve], after: [assets.refuse, assets.fallBack] }
}

class StaticAssets {
  readonly #store: AssetStore
  readonly #names: AssetNames
  readonly #routes: Routes
  readonly #large = new Semaphore(LARGE_TRANSFERS)
  readonly #mount: AssetsMount
  /** Known files to be answered at the end of the poll phase, or when there are enough. */
  #due: { exchange: Exchange; asset: Asset }[] = []

  constructor(mount: AssetsMount, routes: Routes, clock: Clock) {
    this.#routes = routes
    this.#names = new AssetNames(mount.directory, clock)
    this.#store = new AssetStore(mount.directory, clock)
    this.#mount = mount
  }

  /** The file at the path, if there is one; in worker-first order also 405 for the wrong method. */
  readonly serve: Step = exchange => {
    if (!isRead(exchange)) return this.#mount.runWorkerFirst && this.refuse(exchange)
    const name = toAssetName(exchange.path)
    if (name === null) return false
    const known = this.#store.recall(name, hasCoding(exchange))
    if (known !== null) {
      this.#due.push({ exchange, asset: known })
      if (this.#due.length === ANSWERS_AT_ONCE) this.#answerDue()
      else if (this.#due.length === 1) setImmediate(this.#answerDue)
      return exchange.ended ? true : 'later'
    }
    // A path that nothing else answers is always looked for: there a new file must not be missed even for a moment.
    if (this.#names.isAbsent(name) && this.#hasRoute(exchange)) return false
    return this.#answerWith(exchange, name, 1)
  }

  /** A client that is woken once has several answers to read: one by one they would wake it again. */
  readonly #answerDue = (): void => {
    const due = this.#due
    this.#due = []
    for (const { exchange, asset } of due) if (!exchange.ended) this.#answer(exchange, asset, 1)
  }

  #hasRoute({ method, path, host }: Exchange): boolean {
    return this.#routes.find(method, path, host).kind === 'match'
  }

  /** 405 for a path without a route that has a file. */
  readonly refuse: Step = exchange => {
    const name = isRead(exchange) ? null : toAssetName(exchange.path)
    if (name === null) return false
    return this.#find(exchange, name, false, () => {
      const headers = { Allow: toAllow(['GET']) }
      const error = new GatewayError('METHOD_NOT_ALLOWED', 'method not allowed', { headers })
      exchange.responder.sendError(exchange, error)
    })
  }

  /** The page of a single-page application for a path that nothing else answers. */
  readonly fallBack: Step = exchange => {
    if (this.#mount.notFoundHandling !== 'single-page-application' || !isRead(exchange)) return false
    if (!isPagePath(exchange.path) || !isNavigation(readAssetHead(exchange.req.rawHeaders))) return false
    return this.#answerWith(exchange, INDEX, 1)
  }

  #answerWith(exchange: Exchange, name: string, attempt: number): 'later' {
    return this.#find(exchange, name, hasCoding(exchange), asset => this.#answer(exchange, asset, attempt))
  }

  /** The walk goes on where there is no file. */
  #find(exchange: Exchange, name: string, wantsCoding: boolean, onFound: (asset: Asset) => void): 'later' {
    this.#store.find(name, wantsCoding).then(
      asset => {
        if (exchange.ended) return
        if (asset === null) exchange.resume?.()
        else onFound(asset)
      },
      error => exchange.responder.sendError(exchange, error),
    )
    return 'later'
  }

  #answer(exchange: Exchange, asset: Asset, attempt: number): void {
    const { res, responder, method, req } = exchange
    try {
      const head = readAssetHead(req.rawHeaders)
      const form = chooseForm(asset, head.acceptEncoding)
      const decision = decide(method, head, form, form.state.size)
      if (form.body !== null || method === 'HEAD' || !hasBody(decision)) {
        sendForm(exchange, form, decision)
      } else if (res.socket === null) {
        // Earlier responses of the connection are not written yet: a client that does not read them would hold a file for each.
        res.once('socket', () => !exchange.ended && this.#answer(exchange, asset, attempt))
      } else if (!responder.refuseIfFull(exchange)) {
        responder.descriptors.take()
        void this.#stream(exchange, asset.name, form, head, attempt)
      }
    } catch (error) {
      responder.sendError(exchange, toGatewayError(error))
    }
  }

  /** One look at the open file settles what is sent of it, so head and body cannot be of two states. */
  async #stream(exchange: Exchange, name: string, form: AssetForm, head: AssetHead, attempt: number): Promise<void> {
    const { responder, method } = exchange
    let trouble: GatewayError | null = null
    const file = await openForm(form).catch(error => {
      trouble = toFileTrouble(error)
      return null
    })
    if (file === null || exchange.ended) {
      if (file !== null) close(file.fd, () => {})
      responder.descriptors.giveBack()
      this.#lookAgain(exchange, name, attempt, trouble)
      return
    }
    const { fd, state } = file
    const opened = isSameState(state, form.state) ? form : toForm({ ...form, state }, form.meta)
    const decision = decide(method, head, opened, state.size)
    if (!hasBody(decision)) {
      close(fd, () => {})
      responder.descriptors.giveBack()
      sendForm(exchange, opened, decision)
      return
    }
    const { start, end } = decision.range ?? { start: 0, end: state.size - 1 }
    responder.openStream(exchange, decision.status, toHeaders(opened, decision), end + 1 - start)
    new FileSender(exchange, fd, start, end + 1, this.#large).start()
  }

  /** @param trouble - why the file that was found could not be opened; null when it is gone, or another one is in its place */
  #lookAgain(exchange: Exchange, name: string, attempt: number, trouble: GatewayError | null): void {
    if (exchange.ended) return
    const isOver = trouble !== null || attempt === MAX_ATTEMPTS
    const error = trouble ?? new GatewayError('INTERNAL', 'file keeps changing', { status: 503 })
    if (isOver) exchange.responder.sendError(exchange, error)
    else this.#answerWith(exchange, name, attempt + 1)
  }
}

const openFile = promisify(open)
const statOpen = promisify(fstat)

/** @returns null when another file lies at the path: it may be one that must not be served */
async function openForm({ path, state }: AssetForm): Promise<{ fd: number; state: FileState } | null> {
  const fd = await openFile(path, OPEN_FLAGS)
  const stats = await statOpen(fd).catch(() => null)
  if (stats !== null && stats.dev === state.dev && stats.ino === state.ino) return { fd, state: toState(stats) }
  close(fd, () => {})
  return null
}

function isRead({ method }: Exchange): boolean {
  return method === 'GET' || method === 'HEAD'
}

function hasCoding({ req }: Exchange): boolean {
  return headerOf(req.rawHeaders, 'accept-encoding') !== null
}

function hasBody({ status }: Decision): boolean {
  return status === 200 || status === 206
}

function toHeaders(form: AssetForm, { range }: Decision): string[] {
  const headers = form.headers.slice()
  if (range !== null) headers.push('Content-Range', `bytes ${range.start}-${range.end}/${form.state.size}`)
  return headers
}

/** Sends an answer that needs no reading. */
function sendForm(exchange: Exchange, form: AssetForm, decision: Decision): void {
  const { responder } = exchange
  const { body, state } = form
  const { status, range } = decision
  // Small files leave in one write, head and body together.
  if (status === 200 && body !== null && responder.sendPrepared(exchange, form.head, body)) return
  if (status === 304) {
    responder.send(exchange, 304, form.validators.slice(), null)
  } else if (status === 412) {
    responder.sendError(exchange, new GatewayError('BAD_REQUEST', 'precondition failed', { status: 412 }))
  } else if (status === 416) {
    const headers = { 'Content-Range': `bytes */${state.size}` }
    responder.sendError(exchange, new GatewayError('BAD_REQUEST', 'range not satisfiable', { status: 416, headers }))
  } else if (body === null || exchange.method === 'HEAD') {
    responder.send(exchange, 200, [...form.headers, 'Content-Length', String(state.size)], null)
  } else {
    const part = range === null ? body : body.subarray(range.start, range.end + 1)
    responder.send(exchange, status, toHeaders(form, decision), part, true)
  }
}

/** True when a file of the mount answers at the path. Asked at a reload, which may wait for the disk. */
export function isAsset(path: string, mount: AssetsMount | null): boolean {
  const name = toAssetName(path)
  if (mount === null || name === null) return false
  const isFile = (file: string): boolean => orNull(() => statSync(file))?.isFile() === true
  return isFile(`${mount.directory}/${name}`) || isFile(`${mount.directory}/${name}/index.html`)
}

/**
 * Bytes of a file that are read at once. A reading thread that sleeps is woken for each piece, which costs more than to read
 * 128 KiB: a client that has taken one piece before the next one is read gets large ones. Two of them still lie in a
 * processor's own cache.
 */
const PIECE_BYTES = { small: 128 * 1024, large: 512 * 1024 } as const
/** Transfers with large pieces at once: all others hold two small ones, however many clients stop to read. */
export const LARGE_TRANSFERS = 16

/** Sends a part of an open file as fast as the client takes it: the next piece is read while one is written. */
export class FileSender implements Abandonable {
  readonly #exchange: Exchange
  readonly #fd: number
  #position: number
  readonly #end: number
  readonly #large: Semaphore
  /** It may send large pieces, to its end: what the client has not taken of one is held until then. */
  #mayBeLarge = false
  #pieceBytes: number = PIECE_BYTES.small
  #hasWritten = false
  /** Ends the wait for the client; null while it is not waited for. */
  #wake: (() => void) | null = null
  #hasLeft = false

  /**
   * @param fd - open file, counted in `descriptors`; closed by the sender, whatever happens
   * @param start - first byte
   * @param end - byte after the last
   * @param large - shared by all transfers
   */
  constructor(exchange: Exchange, fd: number, start: number, end: number, large: Semaphore) {
    this.#exchange = exchange
    this.#large = large
    this.#fd = fd
    this.#position = start
    this.#end = end
  }

  /** The answer must be open, with the length of the part. */
  start(): void {
    this.#exchange.work = this
    void this.#run()
  }

  /** The client is gone. */
  abandon(): void {
    this.#hasLeft = true
    this.#wake?.()
  }

  async #run(): Promise<void> {
    const { responder } = this.#exchange
    let piece = await this.#read()
    while (Buffer.isBuffer(piece) && !this.#hasLeft) {
      this.#hasWritten = true
      const next = this.#read()
      await this.#write(piece)
      piece = await next
    }
    // No read is under way.
    if (this.#mayBeLarge) this.#large.release()
    close(this.#fd, () => {})
    responder.descriptors.giveBack()
    // With an error the connection is cut: the client must not take a part for the whole.
    if (!this.#hasLeft) responder.closeStream(this.#exchange, piece instanceof GatewayError ? piece : null)
  }

  /** @returns null at the end */
  #read(): Promise<Buffer | GatewayError | null> {
    const length = Math.min(this.#pieceBytes, this.#end - this.#position)
    if (length === 0) return Promise.resolve(null)
    const memory = this.#exchange.responder.pool.take(length)
    return new Promise(resolve =>
      read(this.#fd, memory, 0, length, this.#position, (error, bytes) => {
        if (error === null && bytes > 0) {
          this.#position += bytes
          if (this.#hasWritten) this.#adapt()
          resolve(bytes === length ? memory : memory.subarray(0, bytes))
          return
        }
        if (error === null) resolve(new GatewayError('INTERNAL', 'file became shorter while it was sent'))
        else resolve(new GatewayError('INTERNAL', 'file cannot be read', { cause: error }))
        // The connection is cut: its client is not waited for.
        this.#wake?.()
      }),
    )
  }

  /** Large pieces while the client waits for the disk, small ones while it is waited for. */
  #adapt(): void {
    const isWaiting = this.#wake === null
    this.#mayBeLarge ||= isWaiting && this.#large.tryTake()
    this.#pieceBytes = this.#mayBeLarge && isWaiting ? PIECE_BYTES.large : PIECE_BYTES.small
  }

  /** Resolves when the client takes more, or has left. */
  async #write(piece: Buffer): Promise<void> {
    const { responder } = this.#exchange
    // Only now that the system has its bytes may the memory be written over.
    const onTaken = () => responder.pool.free(piece)
    if (responder.writeStream(this.#exchange, piece, true, onTaken)) return
    await new Promise<void>(resolve => {
      this.#wake = resolve
      responder.onDrain(this.#exchange, resolve)
    })
    this.#wake = null
  }
}
