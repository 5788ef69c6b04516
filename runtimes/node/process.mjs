/**
 * What a handler can do to the process it runs in: end it, or let an exception escape. Page: runtimes/node.
 */

import { isRunning, listChildren } from '../daemon/children.mjs'
import { currentCall } from './capture.mjs'
import { Call } from './call.mjs'
import { toFailure } from './failure.mjs'

/** Milliseconds, about, that a helper process may take to end. */
const CHILDREN_END_MS = 2000

/**
 * Ends the process without running anything of the user's.
 * @type {(code: number) => never}
 */
export const exitNow = /** @type {any} */ (process).reallyExit.bind(process)

/** @param {() => void} leave - says what is left to say and hangs up at once */
export function watchProcess(leave) {
  const exitProperly = process.exit.bind(process)
  process.on('uncaughtException', error => {
    process.stderr.write(`uncaught exception: ${toText(error)}\n`)
    failCurrentCall(error)
    // Its state is unknown from here on.
    leave()
    exitNow(1)
  })
  process.on('unhandledRejection', reason => {
    process.stderr.write(`unhandled rejection: ${toText(reason)}\n`)
  })
  process.exit = /** @type {typeof process.exit} */ (
    code => {
      failCurrentCall(new Error(`handler ended the process with exit code ${code ?? process.exitCode ?? 0}`))
      leave()
      return exitProperly(code)
    }
  )
}

/** Waits until no process runs that this one started; false when one does not end in time. */
export async function haveChildrenEnded() {
  for (let ms = 0; ms < CHILDREN_END_MS; ms++) {
    if (!listChildren(process.pid).some(isRunning)) return true
    await new Promise(resolve => setTimeout(resolve, 1))
  }
  return false
}

/** @param {unknown} error - of the call that ends the worker */
function failCurrentCall(error) {
  const call = currentCall.getStore()
  if (call instanceof Call) call.fail(error, true)
}

/** @param {unknown} error */
function toText(error) {
  const { message, stack } = toFailure('exception', error)
  return stack || message
}
