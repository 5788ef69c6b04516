import t from 'tap'
import { toTooLarge } from '../../lib/edge/answer.ts'
import { toTimeout, toTransferError } from '../../lib/edge/transfer.ts'

const PREFIX = 'edge proxy failed: '

t.test('[edge/passthrough.22] errors of a connection, in words that name no address', async t => {
  for (const [code, reason] of [
    ['ECONNREFUSED', 'connection refused'],
    ['ECONNRESET', 'connection reset'],
    ['EPIPE', 'connection reset'],
    ['ETIMEDOUT', 'connection timed out'],
    ['EHOSTUNREACH', 'host unreachable'],
    ['ENETUNREACH', 'network unreachable'],
    ['EMFILE', 'no descriptors left'],
    ['ENETDOWN', 'network unreachable'],
    ['EHOSTDOWN', 'host unreachable'],
    ['ENFILE', 'no descriptors left'],
    ['EPERM', 'connection not permitted'],
    ['CERT_NOT_YET_VALID', 'TLS certificate is not valid yet'],
    ['EPROTO', 'TLS handshake failed'],
    ['ERR_SSL_WRONG_VERSION_NUMBER', 'TLS handshake failed'],
    ['ERR_TLS_CERT_ALTNAME_INVALID', 'TLS certificate is for another name'],
    ['CERT_HAS_EXPIRED', 'TLS certificate has expired'],
    ['DEPTH_ZERO_SELF_SIGNED_CERT', 'TLS certificate is not trusted'],
    ['UNABLE_TO_VERIFY_LEAF_SIGNATURE', 'TLS certificate is not trusted'],
    ['CERT_SIGNATURE_FAILURE', 'TLS certificate is not trusted'],
    ['ANSWER_HEAD_TOO_LARGE', 'headers of the answer are too large'],
    ['MALFORMED_ANSWER', 'malformed response'],
    ['E_NEVER_SEEN', 'connection failed'],
    ['__proto__', 'connection failed'],
    [7, 'connection failed'],
    [undefined, 'connection failed'],
  ] as const) {
    const cause = Object.assign(new Error('connect 10.0.0.1:80 /secret'), { code })
    const error = toTransferError(cause)
    t.match(
      error,
      { status: 502, code: 'EDGE_FAILED', message: `${PREFIX}proxy request failed: ${reason}` },
      String(code),
    )
    t.equal(error.cause, cause, 'for the log')
  }
})

t.test(
  '[edge/passthrough.18, edge/passthrough.21, edge/passthrough.31, edge/passthrough.32] limits by their names',
  async t => {
    t.equal(toTooLarge(7).message, `${PREFIX}upstream response too large: the limit is 7 bytes`)
    for (const [who, ownMs, text] of [
      ['answer', null, 'upstream timeout: no answer within timeout_ms 500'],
      ['answer', 40, 'upstream timeout: no answer within proxy.timeout_ms 40'],
      ['upstream', null, 'upstream timeout: nothing more of the answer within timeout_ms 500'],
      ['client', 40, 'client timeout: too little of the answer taken within 99 ms'],
      ['all', null, 'upstream timeout: the answer was not complete within 99 ms'],
    ] as const)
      t.match(toTimeout({ who, ms: 99 }, ownMs, 500), { status: 504, code: 'TIMEOUT', message: PREFIX + text })
  },
)
