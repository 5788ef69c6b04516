/** `fngw/test`: the gateway that `fngw test` runs, for tests of functions in Node. Owner: page bin/test. */

import { request as sendRequest } from 'node:http'
import type { HttpRequest, HttpResponse } from './http/exchange.ts'
import { inject, type InjectRequest, type InjectResponse } from './http/inject.ts'

export type { InjectResponse }

/** A request as `gateway.inject` of an embedded gateway takes it. It comes from the loopback address. */
export type TestInjectRequest = Omit<InjectRequest, 'remoteAddress'>

export interface TestGateway {
  /** Address of the gateway, such as `http://127.0.0.1:40123`. */
  readonly url: string
  /** Sends a request to the functions; a text is a path. */
  inject(request: TestInjectRequest | string): Promise<InjectResponse>
}

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
