/** An API server of Kubernetes with its etcd, for tests of manifests. It has no node: objects are checked and stored, and no container starts. */

import { spawnSync } from 'node:child_process'
import { generateKeyPairSync, randomBytes } from 'node:crypto'
import { existsSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import type { Test } from 'tap'
import { freePort, startProgram } from './helpers/program.ts'
import { makeTree } from './helpers/tree.ts'

export interface Cluster {
  /** For kubectl and helm. */
  kubeconfig: string
  kubectl: (args: readonly string[], input?: string) => { status: number | null; output: string }
}

/** @param folder - where programs are searched after PATH. @returns paths, or the name of one that is missing */
export function findClusterPrograms(folder: string): { etcd: string; apiServer: string } | string {
  const places = [...(process.env.PATH ?? '').split(delimiter), folder]
  const find = (name: string) => places.map(place => join(place, name)).find(existsSync)
  const [etcd, apiServer] = [find('etcd'), find('kube-apiserver')]
  if (etcd === undefined || apiServer === undefined) return etcd === undefined ? 'etcd' : 'kube-apiserver'
  return { etcd, apiServer }
}

export async function startCluster(
  t: Test,
  { etcd, apiServer }: { etcd: string; apiServer: string },
): Promise<Cluster> {
  const token = randomBytes(16).toString('hex')
  const { privateKey } = generateKeyPairSync('rsa', {
    modulusLength: 2048,
    publicKeyEncoding: { type: 'spki', format: 'pem' },
    privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
  })
  const tree = makeTree({ 'sa.key': privateKey, 'tokens.csv': `${token},admin,admin,system:masters\n` })
  t.teardown(tree.cleanup)
  const [clientPort, peerPort, port] = [await freePort(), await freePort(), await freePort()]
  const store = `http://127.0.0.1:${clientPort}`
  const etcdCommand = [
    `--data-dir=${tree.path('etcd')}`,
    `--listen-client-urls=${store}`,
    `--advertise-client-urls=${store}`,
    `--listen-peer-urls=http://127.0.0.1:${peerPort}`,
  ]
  await startProgram(t, [etcd, ...etcdCommand], { port: clientPort, cwd: tree.root })
  const serverCommand = [
    `--etcd-servers=${store}`,
    `--secure-port=${port}`,
    '--bind-address=127.0.0.1',
    `--cert-dir=${tree.path('certificates')}`,
    `--token-auth-file=${tree.path('tokens.csv')}`,
    `--service-account-key-file=${tree.path('sa.key')}`,
    `--service-account-signing-key-file=${tree.path('sa.key')}`,
    '--service-account-issuer=https://kubernetes.test',
    '--authorization-mode=RBAC',
    '--service-cluster-ip-range=10.0.0.0/24',
  ]
  const server = await startProgram(t, [apiServer, ...serverCommand], { port, cwd: tree.root })
  tree.write({
    kubeconfig: {
      json: {
        apiVersion: 'v1',
        kind: 'Config',
        clusters: [
          { name: 'test', cluster: { server: `https://127.0.0.1:${port}`, 'insecure-skip-tls-verify': true } },
        ],
        users: [{ name: 'test', user: { token } }],
        contexts: [{ name: 'test', context: { cluster: 'test', user: 'test' } }],
        'current-context': 'test',
      },
    },
  })
  const kubeconfig = tree.path('kubeconfig')
  const kubectl: Cluster['kubectl'] = (args, input) => {
    const { status, stdout, stderr } = spawnSync('kubectl', [`--kubeconfig=${kubeconfig}`, ...args], {
      encoding: 'utf8',
      ...(input !== undefined && { input }),
    })
    return { status, output: stdout + stderr }
  }
  // It accepts connections before it is ready.
  while (kubectl(['get', '--raw', '/readyz']).output !== 'ok')
    if (server.exitCode !== null) throw new Error(`kube-apiserver ended with ${server.exitCode}`)
  return { kubeconfig, kubectl }
}
