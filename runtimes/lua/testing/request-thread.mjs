/** Sends the requests of Lua tests, one at a time. Page: bin/test. */

import { request } from 'node:http'
import { workerData } from 'node:worker_threads'

const { url: gateway, flag, port } = workerData

port.on('message', (/** @type {{ head: string, body: Uint8Array | null }} */ { head, body }) => {
  send(head, body).then(reply, (/** @type {Error} */ { message }) => reply({ error: message }))
})

/** @param {object} message */
function reply(message) {
  port.postMessage(message)
  Atomics.store(flag, 0, 1)
  Atomics.notify(flag, 0)
}

/** @param {string} head @param {Uint8Array | null} body */
async function send(head, body) {
  if (!gateway) {
    throw new Error('there is no gateway: run "fngw test", or set FNGW_TEST_URL to the address of a running gateway')
  }
  const { method, url, headers } = JSON.parse(head)
  const { hostname, port } = new URL(gateway)
  return new Promise((resolve, reject) => {
    const sent = request({ hostname, port, path: url, method, headers, agent: false }, async answer => {
      try {
        const body = Buffer.concat(await answer.toArray())
        /** @type {Record<string, string>} */
        const joined = {}
        for (const [name, values] of Object.entries(answer.headersDistinct)) joined[name] = (values ?? []).join(', ')
        resolve({ head: JSON.stringify({ status: answer.statusCode, headers: joined }), body })
      } catch (error) {
        reject(error)
      }
    })
    sent.on('error', reject)
    sent.end(body ?? undefined)
  })
}
