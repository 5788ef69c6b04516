/**
 * Static files of the mount that the root's config names. Spec: §2.11, page assets/static-assets.
 *
 *   run_worker_first false   file ─► route ─► page of the application ─► 404
 *   run_worker_first true    route ─► file ─► page of the application ─► 404
 */

import { close, fstat, open, statSync } from 'node:fs'
import type { AssetsMount } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import { GatewayError, toGatewayError } from '../core/errors.ts'
import { toAllow } from '../core/http-text.ts'
import { Semaphore } from '../core/semaphore.ts'
import type { Exchange, Step } from '../http/exchange.ts'
import type { RouteTable } from '../router/route-table.ts'
import { decide, type Decision } from './conditional.ts'
import { FileSender, LARGE_TRANSFERS } from './file-sender.ts'
import { type Asset, type AssetForm, isSameState, toForm, toState } from './file.ts'
import { AssetNames } from './names.ts'
import { type AssetHead, CodingChoice, isNavigation, isPagePath, readAssetHead, toAssetName } from './request.ts'
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
  readonly #choice = new CodingChoice()
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
    this.#store.find(name, wantsCoding, exchange, this.#onFile)
    return 'later'
  }

  /** A client that is woken once has several answers to read: each for itself would wake it anew. */
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
    this.#store.find(name, false, exchange, this.#onOtherMethod)
    return 'later'
  }

  /** The page of a single-page application for a path that nothing else answers. */
  readonly fallBack: Step = exchange => {
    if (!this.#isApplication || (exchange.method !== 'GET' && exchange.method !== 'HEAD')) return false
    if (!isPagePath(exchange.path) || !isNavigation(readAssetHead(exchange.req.rawHeaders))) return false
    this.#store.find(INDEX, hasCoding(exchange), exchange, this.#onFile)
    return 'later'
  }

  readonly #onFile = (exchange: Exchange, asset: Asset | null, error: GatewayError | null): void => {
    this.#take(exchange, asset, error, 1)
  }

  #take(exchange: Exchange, asset: Asset | null, error: GatewayError | null, attempt: number): void {
    if (exchange.ended) return
    if (error !== null) exchange.responder.sendError(exchange, error)
    else if (asset === null) exchange.resume?.()
    else this.#answer(exchange, asset, attempt)
  }

  readonly #onOtherMethod = (exchange: Exchange, asset: Asset | null, error: GatewayError | null): void => {
    if (exchange.ended) return
    const refused = new GatewayError('METHOD_NOT_ALLOWED', 'method not allowed', {
      headers: { Allow: toAllow(['GET']) },
    })
    if (error !== null) exchange.responder.sendError(exchange, error)
    else if (asset === null) exchange.resume?.()
    else exchange.responder.sendError(exchange, refused)
  }

  #answer(exchange: Exchange, asset: Asset, attempt: number): void {
    try {
      const head = readAssetHead(exchange.req.rawHeaders)
      const form = this.#choice.choose(asset, head.acceptEncoding)
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
    const next = attempt + 1
    this.#store.find(name, hasCoding(exchange), exchange, (_, asset, error) => this.#take(exchange, asset, error, next))
  }
}

function closeFile({ responder }: Exchange, fd: number): void {
  close(fd, () => {})
  responder.descriptors.giveBack()
}

function hasCoding({ req: { rawHeaders } }: Exchange): boolean {
  for (let i = 0; i < rawHeaders.length; i += 2) {
    if (rawHeaders[i]!.length === 15 && rawHeaders[i]!.toLowerCase() === 'accept-encoding') return true
  }
  return false
}

function hasBody({ status }: Decision): boolean {
  return status === 200 || status === 206
}

function toHeaders(form: AssetForm, { range }: Decision): string[] {
  const headers = form.headers.slice()
  if (range !== null) headers.push('Content-Range', `bytes ${range.start}-${range.end}/${form.state.size}`)
  return headers
}

/** Sends what needs no reading. */
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
