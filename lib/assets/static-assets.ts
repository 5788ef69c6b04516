/**
 * Static files of the mount that the root's config names. Spec: §2.11, page assets/static-assets.
 *
 *   run_worker_first false   file ─► route ─► page of the application ─► 404
 *   run_worker_first true    route ─► file ─► page of the application ─► 404
 */

import { close, fstat, open, read, statSync } from 'node:fs'
import type { AssetsMount } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import { GatewayError, toGatewayError } from '../core/errors.ts'
import { headerOf, toAllow } from '../core/http-text.ts'
import { Semaphore } from '../core/semaphore.ts'
import type { Exchange, Step, Abandonable } from '../http/exchange.ts'
import type { RouteTable } from '../router/route-table.ts'
import {
  decide,
  type Decision,
  type AssetHead,
  chooseForm,
  isNavigation,
  isPagePath,
  readAssetHead,
  toAssetName,
} from './request.ts'
import { type Asset, type AssetForm, isSameState, toForm, toState } from './file.ts'
import { AssetNames } from './folder-look.ts'
import { AssetStore, MAX_ATTEMPTS, OPEN_FLAGS, toFileTrouble } from './store.ts'

/** Steps of the public walk around the routes. */
interface AssetSteps {
  before: readonly Step[]
  after: readonly Step[]
}

/** Answers from memory that leave together. */
const ANSWERS_AT_ONCE = 8

type Routes = Pick<RouteTable, 'find'>

const NO_STEPS: AssetSteps = { before: [], after: [] }
const INDEX = 'index.html'

/** @param mount - null when no assets are configured: then nothing is done for any request */
export function toAssetSteps(mount: AssetsMount | null, routes: Routes, clock: Clock): AssetSteps {
  if (mount === null) return NO_STEPS
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
  readonly #isApplication: boolean
  readonly #runWorkerFirst: boolean
  /** Known files to be answered at the end of the poll phase, or when there are enough. */
  #due: { exchange: Exchange; asset: Asset }[] = []

  constructor(mount: AssetsMount, routes: Routes, clock: Clock) {
    this.#routes = routes
    this.#names = new AssetNames(mount.directory, clock)
    this.#store = new AssetStore(mount.directory, clock)
    this.#isApplication = mount.notFoundHandling === 'single-page-application'
    this.#runWorkerFirst = mount.runWorkerFirst
  }

  /** The file at the path, if there is one; in worker-first order also 405 for the wrong method. */
  readonly serve: Step = exchange => {
    if (exchange.method !== 'GET' && exchange.method !== 'HEAD') return this.#runWorkerFirst && this.refuse(exchange)
    const name = toAssetName(exchange.path)
    if (name === null) return false
    const wantsCoding = hasCoding(exchange)
    const known = this.#store.recall(name, wantsCoding)
    if (known !== null) {
      this.#due.push({ exchange, asset: known })
      if (this.#due.length === ANSWERS_AT_ONCE) this.#answerDue()
      else if (this.#due.length === 1) setImmediate(this.#answerDue)
      return exchange.ended ? true : 'later'
    }
    if (this.#names.isAbsent(name) && this.#hasRoute(exchange)) return false
    this.#find(exchange, name, wantsCoding, 1)
    return 'later'
  }

  /** A client that is woken once has several answers to read: one by one they would wake it again. */
  readonly #answerDue = (): void => {
    const due = this.#due
    this.#due = []
    for (const { exchange, asset } of due) if (!exchange.ended) this.#answer(exchange, asset, 1)
  }

  /** A path that nothing else answers is always looked for: there a new file must not be missed even for a moment. */
  #hasRoute({ method, path, host }: Exchange): boolean {
    return this.#routes.find(method, path, host).kind === 'match'
  }

  /** 405 for a path without a route that has a file. */
  readonly refuse: Step = exchange => {
    if (exchange.method === 'GET' || exchange.method === 'HEAD') return false
    const name = toAssetName(exchange.path)
    if (name === null) return false
    this.#store.find(name, false, (asset, error) => {
      if (exchange.ended) return
      const headers = { Allow: toAllow(['GET']) }
      if (error !== null) exchange.responder.sendError(exchange, error)
      else if (asset === null) exchange.resume?.()
      else
        exchange.responder.sendError(
          exchange,
          new GatewayError('METHOD_NOT_ALLOWED', 'method not allowed', { headers }),
        )
    })
    return 'later'
  }

  /** The page of a single-page application for a path that nothing else answers. */
  readonly fallBack: Step = exchange => {
    if (!this.#isApplication || (exchange.method !== 'GET' && exchange.method !== 'HEAD')) return false
    if (!isPagePath(exchange.path) || !isNavigation(readAssetHead(exchange.req.rawHeaders))) return false
    this.#find(exchange, INDEX, hasCoding(exchange), 1)
    return 'later'
  }

  #find(exchange: Exchange, name: string, wantsCoding: boolean, attempt: number): void {
    this.#store.find(name, wantsCoding, (asset, error) => {
      if (exchange.ended) return
      if (error !== null) exchange.responder.sendError(exchange, error)
      else if (asset === null) exchange.resume?.()
      else this.#answer(exchange, asset, attempt)
    })
  }

  #answer(exchange: Exchange, asset: Asset, attempt: number): void {
    try {
      const head = readAssetHead(exchange.req.rawHeaders)
      const form = chooseForm(asset, head.acceptEncoding)
      const decision = decide(exchange.method, head, form, form.state.size)
      if (form.body !== null || exchange.method === 'HEAD' || !hasBody(decision)) {
        sendForm(exchange, form, decision)
        return
      }
      const { res, responder } = exchange
      if (res.socket === null) {
        // Earlier responses of the connection are not written yet: a client that does not read them would hold a file for each.
        res.once('socket', () => !exchange.ended && this.#answer(exchange, asset, attempt))
        return
      }
      if (responder.refuseIfFull(exchange)) return
      responder.descriptors.take()
      open(form.path, OPEN_FLAGS, (error, fd) => {
        if (error === null) {
          this.#stream(exchange, asset.name, form, head, fd, attempt)
        } else {
          responder.descriptors.giveBack()
          this.#lookAgain(exchange, asset.name, attempt, error)
        }
      })
    } catch (error) {
      exchange.responder.sendError(exchange, toGatewayError(error))
    }
  }

  /** One look at the open file settles what is sent of it, so head and body cannot be of two states. */
  #stream(exchange: Exchange, name: string, form: AssetForm, head: AssetHead, fd: number, attempt: number): void {
    fstat(fd, (error, stats) => {
      if (error !== null || exchange.ended || stats.dev !== form.state.dev || stats.ino !== form.state.ino) {
        closeFile(exchange, fd)
        // Another file lies at the path: it may be one that must not be served.
        this.#lookAgain(exchange, name, attempt, error)
        return
      }
      const state = toState(stats)
      const opened = isSameState(state, form.state) ? form : toForm({ ...form, state }, form.meta)
      const decision = decide(exchange.method, head, opened, state.size)
      if (!hasBody(decision)) {
        closeFile(exchange, fd)
        sendForm(exchange, opened, decision)
        return
      }
      const { start, end } = decision.range ?? { start: 0, end: state.size - 1 }
      exchange.responder.openStream(exchange, decision.status, toHeaders(opened, decision), end + 1 - start)
      new FileSender(exchange, fd, start, end + 1, this.#large).start()
    })
  }

  /** @param error - why the file that was found could not be opened; null when another one is in its place */
  #lookAgain(exchange: Exchange, name: string, attempt: number, error: Error | null): void {
    if (exchange.ended) return
    const trouble = error === null ? null : toFileTrouble(error)
    if (trouble !== null || attempt === MAX_ATTEMPTS) {
      exchange.responder.sendError(
        exchange,
        trouble ?? new GatewayError('INTERNAL', 'file keeps changing', { status: 503 }),
      )
      return
    }
    this.#find(exchange, name, hasCoding(exchange), attempt + 1)
  }
}

function closeFile({ responder }: Exchange, fd: number): void {
  close(fd, () => {})
  responder.descriptors.giveBack()
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
  // Small files leave in one write, head and body together.
  const isWhole = decision.status === 200 && body !== null
  if (isWhole && responder.sendPrepared(exchange, form.head, body)) return
  switch (decision.status) {
    case 304:
      responder.send(exchange, 304, form.validators.slice(), null)
      return
    case 412:
      responder.sendError(exchange, new GatewayError('BAD_REQUEST', 'precondition failed', { status: 412 }))
      return
    case 416: {
      const headers = { 'Content-Range': `bytes */${state.size}` }
      const error = new GatewayError('BAD_REQUEST', 'range not satisfiable', { status: 416, headers })
      responder.sendError(exchange, error)
      return
    }
    default: {
      const headers = toHeaders(form, decision)
      const { range } = decision
      if (body === null || exchange.method === 'HEAD') {
        responder.send(exchange, 200, [...headers, 'Content-Length', String(state.size)], null)
      } else if (range === null) {
        responder.send(exchange, 200, headers, body, true)
      } else {
        responder.send(exchange, 206, headers, body.subarray(range.start, range.end + 1), true)
      }
    }
  }
}

/** True when a file of the mount answers at the path. Asked at a reload, which may wait for the disk. */
export function isAsset(path: string, mount: AssetsMount | null): boolean {
  const name = toAssetName(path)
  if (mount === null || name === null) return false
  const isFile = (file: string): boolean => {
    try {
      return statSync(file).isFile()
    } catch {
      return false
    }
  }
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

/**
 * Sends a part of an open file as fast as the client takes it.
 *
 *   read ─► ready ─► write        the next piece is read while this one is written
 *    ▲ ahead  │ client slow: waits for it
 *    └────────┘
 */
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
  /** Read and not written. */
  #ready: Buffer | null = null
  #isReading = false
  /** The client is waited for. */
  #isBlocked = false
  #isOver = false

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
    if (this.#position === this.#end) this.#finish(null)
    else this.#read()
  }

  /** The client is gone. */
  abandon(): void {
    if (this.#isOver) return
    this.#isOver = true
    if (!this.#isReading) this.#close()
  }

  #read(): void {
    const length = Math.min(this.#pieceBytes, this.#end - this.#position)
    if (length === 0) return
    this.#isReading = true
    const memory = this.#exchange.responder.pool.take(length)
    read(this.#fd, memory, 0, length, this.#position, (error, bytes) => {
      this.#isReading = false
      if (this.#isOver) this.#close()
      else if (error !== null) this.#finish(new GatewayError('INTERNAL', 'file cannot be read', { cause: error }))
      else if (bytes === 0) this.#finish(new GatewayError('INTERNAL', 'file became shorter while it was sent'))
      else this.#take(memory, bytes)
    })
  }

  #take(memory: Buffer, bytes: number): void {
    this.#position += bytes
    this.#ready = bytes === memory.length ? memory : memory.subarray(0, bytes)
    if (this.#hasWritten) this.#adapt()
    if (!this.#isBlocked) this.#write(this.#ready)
  }

  /** Large pieces while the client waits for the disk, small ones while it is waited for. */
  #adapt(): void {
    this.#mayBeLarge ||= !this.#isBlocked && this.#large.tryTake()
    this.#pieceBytes = this.#mayBeLarge && !this.#isBlocked ? PIECE_BYTES.large : PIECE_BYTES.small
  }

  #write(piece: Buffer): void {
    this.#ready = null
    this.#hasWritten = true
    this.#read()
    const { responder } = this.#exchange
    // Only now that the system has its bytes may the memory be written over.
    const onTaken = () => responder.pool.free(piece)
    if (responder.writeStream(this.#exchange, piece, true, onTaken)) {
      this.#goOn()
      return
    }
    this.#isBlocked = true
    responder.onDrain(this.#exchange, () => {
      this.#isBlocked = false
      if (!this.#isOver) this.#goOn()
    })
  }

  /** The client took what was written. */
  #goOn(): void {
    if (this.#ready !== null) this.#write(this.#ready)
    else if (!this.#isReading) this.#finish(null)
  }

  #finish(error: GatewayError | null): void {
    this.#isOver = true
    this.#close()
    // With an error the connection is cut: the client must not take a part for the whole.
    this.#exchange.responder.closeStream(this.#exchange, error)
  }

  #close(): void {
    if (this.#mayBeLarge) this.#large.release()
    this.#mayBeLarge = false
    close(this.#fd, () => {})
    this.#exchange.responder.descriptors.giveBack()
  }
}
