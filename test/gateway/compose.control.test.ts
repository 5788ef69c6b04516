import { readFileSync } from 'node:fs'
import t from 'tap'
import { listEndpoints } from '../../build/endpoint-meanings.ts'

t.test('[control/control-plane.10] the page lists every endpoint with its access, and no other', t => {
  const page = readFileSync(new URL('../../spec/control/control-plane.md', import.meta.url), 'utf8')
  const rows = new Set<string>()
  for (const line of page.split('\n')) {
    const [, methods, paths, access] = /^\| ([A-Z, ]+) \| (.+?) \| (.+?) \|/.exec(line) ?? []
    for (const method of methods?.split(', ') ?? [])
      for (const [, path] of paths!.matchAll(/`([^`]+)`/g)) rows.add(`${method} ${path} ${access}`)
  }
  const endpoints = listEndpoints().map(
    ({ method, path, access }) => `${method} ${path} ${access === 'login' ? 'acts, before login' : access}`,
  )
  t.same([...rows].sort(), [...endpoints].sort())
  t.ok(endpoints.length >= 20)
  t.end()
})

t.test('[control/access.6] what writes is a write, and nothing that answers GET is one', t => {
  for (const { method, path, access } of listEndpoints()) {
    if (access === 'write') t.not(method, 'GET', path)
    if (method === 'PUT' || method === 'DELETE' || method === 'PATCH') t.equal(access, 'write', `${method} ${path}`)
    if (method === 'POST') t.ok(['acts', 'login', 'write'].includes(access), path)
  }
  t.end()
})
