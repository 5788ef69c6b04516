// Notes in a journal: one JSON line per change. An append is one write, so two workers never damage each other's lines.
import { appendFile, mkdir, readFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const folder = dirname(fileURLToPath(import.meta.url))

/** Where the journal lies: `NOTES_FILE` of fn.env.json, else a dot folder that is never served. */
function journalPath(env) {
  return env.NOTES_FILE || join(folder, '.data', 'notes.jsonl')
}

async function append(env, change) {
  const path = journalPath(env)
  await mkdir(dirname(path), { recursive: true })
  await appendFile(path, `${JSON.stringify(change)}\n`)
}

/** All notes that are not deleted, oldest first. */
export async function readNotes(env) {
  let text
  try {
    text = await readFile(journalPath(env), 'utf8')
  } catch (error) {
    if (error.code === 'ENOENT') return []
    throw error
  }
  const notes = new Map()
  for (const line of text.split('\n')) {
    if (line === '') continue
    const change = JSON.parse(line)
    if (change.deleted) notes.delete(change.id)
    else notes.set(change.id, change)
  }
  return [...notes.values()]
}

export async function findNote(env, id) {
  return (await readNotes(env)).find(note => note.id === id)
}

export async function addNote(env, note) {
  await append(env, note)
}

export async function deleteNote(env, id) {
  await append(env, { id, deleted: true })
}
