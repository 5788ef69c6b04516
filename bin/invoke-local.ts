/** `fngw invoke --local`: one call in a gateway that lives as long as the call. Owner: page bin/invoke. */

import { readCallFields, toInvokeRecord } from '../lib/control/call-fields.ts'
import { createGateway, GatewayError, type GatewayOptions } from '../lib/index.ts'
import { toWarningText } from './banner.ts'
import { toNameHint } from './function-names.ts'
import type { Output } from './output.ts'
import { CommandError } from './usage-error.ts'

/** A call leaves nothing behind: no log files, and nothing of the tree's runs beside it. */
const FOR_ONE_CALL: GatewayOptions = {
  hotReload: false,
  accessLog: false,
  logFiles: false,
  schedulerEnabled: false,
  jobsEnabled: false,
  isAlone: true,
}

/**
 * @param call - as `POST /_fn/invoke` takes it
 * @returns the record that it answers
 * @throws CommandError for what the gateway refuses
 */
export async function invokeLocally(
  options: GatewayOptions,
  call: Readonly<Record<string, unknown>>,
  output: Output,
): Promise<Record<string, unknown>> {
  const gateway = await createGateway({ ...options, ...FOR_ONE_CALL })
  try {
    gateway.on('build', ({ state, key, action }) => {
      if (state === 'began') output.note(`${action} ${output.clean(key)} ...`)
    })
    const { name, runtime, query, ...fields } = readCallFields(call)
    const request = { ...fields, ...(runtime !== null && { runtime }), ...(query !== null && { query }) }
    const result = await gateway.invoke(name, request)
    if (result.error !== null) throw result.error
    return toInvokeRecord(result, result.path, result.route)
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error
    // What is wrong in the tree may be why.
    for (const warning of gateway.warnings) output.note(toWarningText(warning, output))
    const hint = error.code === 'NOT_FOUND' ? `: ${toNameHint(String(call.name), gateway.catalog())}` : ''
    throw new CommandError(`${toText(error)}${hint}`)
  } finally {
    await gateway.close()
  }
}

function toText({ status, message, detail }: GatewayError): string {
  const where =
    detail?.file === undefined ? '' : ` (${detail.file}${detail.line === undefined ? '' : `:${detail.line}`})`
  const stack = detail?.stack === undefined ? '' : `\n${detail.stack}`
  return `${status}: ${message}${where}${stack}${detail?.hint === undefined ? '' : `\n${detail.hint}`}`
}
