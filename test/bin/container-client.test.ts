import { chmodSync } from 'node:fs'
import t from 'tap'
import { findClient } from '../../bin/container-client.ts'
import { makeFakeDocker } from './fake-docker.ts'
import { makeTree } from '../helpers/tree.ts'

t.setTimeout(120_000)

const DOCKER = { ServerVersion: '28.0.0', SecurityOptions: ['name=seccomp,profile=builtin'] }

t.test('[bin/container.2, bin/container.4] what a client says of itself', async t => {
  const cases: [name: string, settings: Parameters<typeof makeFakeDocker>[0], found: unknown][] = [
    ['docker', { info: DOCKER }, 'same'],
    ['docker without root', { info: { ...DOCKER, SecurityOptions: ['name=rootless'] } }, 'root-is-user'],
    ['podman as root', { info: { host: { security: { rootless: false } } } }, 'same'],
    ['podman without root', { info: { host: { security: { rootless: true } } } }, 'keep-id'],
    [
      'docker whose daemon is away, and which ends with 0',
      { info: { ServerVersion: '', ServerErrors: ['Cannot connect to the Docker daemon'] } },
      /: Cannot connect to the Docker daemon$/,
    ],
    [
      'docker whose daemon is away, and which says so on standard error',
      { info: { ServerVersion: '' }, infoCode: 1, infoError: 'Is it running?' },
      /: Is it running\?$/,
    ],
    ['podman that cannot run', { info: { host: {} }, infoCode: 125, infoError: 'no runtime' }, /: no runtime$/],
    ['a program that is no client', { info: 'hello' }, /: info did not describe its daemon$/],
  ]
  for (const [name, settings, want] of cases) {
    const fake = makeFakeDocker(settings)
    t.teardown(fake.cleanup)
    const found = await findClient(fake.program, { ...process.env, ...fake.env })
    if (want instanceof RegExp) t.match((found as string[])[0], want, name)
    else t.same(found, { program: fake.program, ownership: want }, name)
    t.same(fake.calls(), [['info', '--format', '{{json .}}']])
  }
})

t.test('[bin/container.2] without a name docker and podman are asked in turn', async t => {
  const tree = makeTree({
    'both/docker': '#!/bin/sh\necho "Is the docker daemon running?" >&2\nexit 1\n',
    'both/podman': '#!/bin/sh\necho \'{"host":{"security":{"rootless":true}}}\'\n',
    'none/': '',
  })
  t.teardown(tree.cleanup)
  for (const name of ['docker', 'podman']) chmodSync(tree.path(`both/${name}`), 0o755)
  const find = (folder: string) => findClient(null, { PATH: `${tree.path(folder)}` })
  t.same(await find('both'), { program: 'podman', ownership: 'keep-id' })
  t.same(await find('none'), ['docker: it is not installed', 'podman: it is not installed'])
  t.same(await findClient(tree.path('none'), {}), [`${tree.path('none')}: spawn ${tree.path('none')} EACCES`])
})
