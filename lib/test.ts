/** `fngw/test`: the gateway that `fngw test` runs, for tests of functions in Node. Owner: page bin/test. */

import { request as sendRequest } from 'node:http'
import type { HttpRequest, HttpResponse } from './http/exchange.ts'
import { inject, type InjectRequest, type InjectResponse } from './http/inject.ts'

export type { InjectResponse }

/** A request for `gateway.inject()` of `fngw/test`. The client address is that of this machine. */
export type TestInjectRequest = Omit<InjectRequest, 'remoteAddress'>

/** The gateway that a test calls. */
export interface TestGateway {
  /** Address of the gateway, such as `http://127.0.0.1:40123`. @throws Error outside of `fngw test` and without `FNGW_TEST_URL` */
  readonly url: string
  /** Sends a request. A string is the path of a GET request. */
  inject(request: TestInjectRequest | string): Promise<InjectResponse>
}

/** The gateway of `fngw test`, or the one at `FNGW_TEST_URL`. */
export const gateway: TestGateway = {
  get url() {
    const { FNGW_TEST_URL: url = '' } = process.env
    if (url !== '') return url
    throw new Error('there is no gateway: run "fngw test", or set FNGW_TEST_URL to the address of a running gateway')
  },
  inject(request) {
    const given = typeof request === 'string' ? { url: request } : request
    return new Promise((resolve, reject) => {
      const { url } = gateway
      inject((req, res) => forward(url, req, res, reject), given).then(resolve, reject)
    })
  },
}

/** Sends a request that is in memory over the network. */
function forward(url: string, req: HttpRequest, res: HttpResponse, onFailure: (error: Error) => void): void {
  const { method = 'GET', url: path = '/', rawHeaders } = req
  const { hostname, port } = new URL(url)
  const sent = sendRequest({ hostname, port, path, method, headers: rawHeaders, agent: false }, answer => {
    res.writeHead(answer.statusCode ?? 0, answer.rawHeaders)
    answer.on('data', chunk => res.write(chunk))
    answer.on('end', () => res.end())
    answer.on('error', onFailure)
  })
  sent.on('error', onFailure)
  req.on('data', chunk => sent.write(chunk))
  req.on('end', () => sent.end())
}
