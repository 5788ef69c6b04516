// DELETE /notes/:id
import { deleteNote, findNote } from './_store.js'

export async function handler(event, { id }) {
  if (!(await findNote(event.env, id))) return { status: 404, body: { error: 'no such note' } }
  await deleteNote(event.env, id)
  return { status: 204 }
}
