// @summary Send a message, or list them
import { keep, list } from './_messages.js'

export const handler = ({ method, body }) => {
  if (method === 'GET') return list()
  keep(JSON.parse(body))
  return { status: 204 }
}
