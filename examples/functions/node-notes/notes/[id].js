// GET /notes/:id
import { findNote } from './_store.js'

export async function handler(event, { id }) {
  const note = await findNote(event.env, id)
  return note ?? { status: 404, body: { error: 'no such note' } }
}
