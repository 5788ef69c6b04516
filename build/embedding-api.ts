/**
 * The page docs/reference/embedding-api.md: what `fngw` and `fngw/test` export, with the comments and types of the sources.
 * Owner: page docs.
 */

import { fileURLToPath } from 'node:url'
import {
  type ClassElement,
  isClassDeclaration,
  isConstructorDeclaration,
  isFunctionDeclaration,
  isIdentifier,
  isInterfaceDeclaration,
  isLiteralTypeNode,
  isMethodDeclaration,
  isPropertyDeclaration,
  isStringLiteral,
  isTypeAliasDeclaration,
  isTypeReferenceNode,
  isUnionTypeNode,
  isVariableDeclaration,
  type Node,
  type ParameterDeclaration,
  type SignatureDeclaration,
  type TypeElement,
  type TypeNode,
} from 'typescript/unstable/ast'
import { API, NodeBuilderFlags, type Project, type Symbol as TypeSymbol, SymbolFlags } from 'typescript/unstable/sync'
import { SETTING_OPTIONS } from '../lib/config/setting-options.ts'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const LIB = `${ROOT}lib/`
const TEST_MODULE = 'Tests: fngw/test'

/** Every export has its place here. */
const GROUPS: Readonly<Record<string, readonly string[]>> = {
  'Create a gateway': ['createGateway', 'GatewayOptions', 'SettingsInput', 'Settings', 'SettingSource', 'Clock'],
  'Use a gateway': [
    ...['Gateway', 'ListenAddress', 'GatewayListening', 'Listening', 'HandedSockets', 'CloseOptions'],
    ...['GatewayExplanation', 'DoctorCheck'],
  ],
  'Requests and calls without a port': [
    ...['InjectRequest', 'InjectResponse', 'InvokeRequest', 'InvokeResult', 'InternalResult'],
  ],
  Jobs: ['GatewayJobs', 'JobInput', 'JobRecord'],
  Events: [
    ...['EventName', 'Listener', 'LinesTaker', 'RequestRecord', 'ReloadRecord', 'LogRecord', 'BuildRecord'],
    ...['ScheduleRecord', 'JobEventRecord'],
  ],
  'Errors and warnings': ['GatewayError', 'ErrorCode', 'ErrorDetail', 'SettingsError', 'ListenError', 'Warning'],
  'Functions of a tree': ['RuntimeName', 'FunctionVersion', 'Policy'],
  'Handler types': [
    ...['FnHandler', 'FnEvent', 'FnContext', 'FnResponse', 'FnEnvelope', 'FnProxy'],
    ...['FnLambdaEvent', 'FnLambdaContext', 'FnWorkerContext'],
  ],
  'Runtimes on other machines': ['startRemoteDaemon', 'RemoteDaemonOptions', 'RemoteDaemon', 'RemoteDaemonError'],
  [TEST_MODULE]: ['gateway', 'TestGateway', 'TestInjectRequest'],
}

/** @returns the parts of the page below its title */
export function toEmbeddingParts(): string[] {
  const api = new API({ cwd: ROOT })
  try {
    const [project] = api.updateSnapshot({ openProject: `${ROOT}tsconfig.build.json` }).getProjects()
    return new ApiPage(project!).parts()
  } finally {
    api.close()
  }
}

const TYPE_FLAGS = NodeBuilderFlags.NoTruncation | NodeBuilderFlags.UseSingleQuotesForStringLiteralType

type Member = TypeElement | ClassElement

class ApiPage {
  readonly #project: Project
  /** Exported declarations by name. */
  readonly #exported = new Map<string, TypeSymbol>()
  /** Types that are not exported and stand in a shown declaration: their shown members; null for all. */
  readonly #reached = new Map<string, { symbol: TypeSymbol; names: Set<string> | null }>()

  constructor(project: Project) {
    this.#project = project
  }

  parts(): string[] {
    const { checker, program } = this.#project
    for (const module of ['index', 'test']) {
      const file = program.getSourceFile(`${LIB}${module}.ts`)!
      for (const symbol of checker.getExportsOfModule(checker.getSymbolAtLocation(file)!))
        this.#exported.set(symbol.name, this.#resolve(symbol))
    }
    const placed = Object.values(GROUPS).flat()
    const wrong = [...this.#exported.keys()].filter(name => !placed.includes(name))
    const gone = placed.filter(name => !this.#exported.has(name))
    if (wrong.length + gone.length > 0)
      throw new Error(`build/embedding-api.ts: add ${wrong.join(', ') || 'nothing'}, remove ${gone.join(', ') || 'nothing'}`)

    const groups = Object.entries(GROUPS).flatMap(([title, names]) => [
      `## ${title}`,
      ...names.flatMap(name => this.#part(name, this.#exported.get(name)!, title === TEST_MODULE)),
    ])
    const others = new Map<string, string[]>()
    // Each may lead to further ones, and to more members of an earlier one.
    for (const [name, { symbol, names }] of this.#reached) others.set(name, this.#part(name, symbol, false, names))
    return [
      ...groups,
      '## Other types',
      'The types above refer to these. They cannot be imported by name.',
      ...[...others.keys()].sort().flatMap(name => others.get(name)!),
    ]
  }

  #part(name: string, symbol: TypeSymbol, isTest: boolean, names: Set<string> | null = null): string[] {
    const { checker } = this.#project
    const isExported = this.#exported.get(name) === symbol
    const text = toProse(symbol.getDocumentationComment(checker))
    if (text === '' && isExported) throw new Error(`lib: ${name} is exported and has no comment`)
    const tags = symbol.getJsDocTags(checker).map(tag => {
      const meaning = toProse(tag.text ?? '')
      if (tag.name === 'param') return `- ${meaning.replace(/^(\S+) - /, '`$1`: ')}`
      return `- ${tag.name === 'returns' ? 'Returns' : 'Throws'} ${meaning}`
    })
    return [
      // Headings must differ in more than case.
      isTest && name === 'gateway' ? '### gateway under test' : `### ${name}`,
      ...(text === '' ? [] : [text]),
      ...(tags.length === 0 ? [] : [tags.join('\n')]),
      `\`\`\`ts\n${this.#declaration(name, symbol, isExported ? null : names)}\n\`\`\``,
    ]
  }

  #declaration(name: string, symbol: TypeSymbol, names: Set<string> | null): string {
    const node = nodeOf(symbol)
    if (name === 'Settings') return this.#settings(symbol)
    if (isFunctionDeclaration(node)) return `function ${this.#signature(name, node)}`
    if (isVariableDeclaration(node)) {
      this.#follow(node.type!)
      return `const ${name}: ${node.type!.getText()}`
    }
    if (isTypeAliasDeclaration(node)) {
      const picked = this.#readPick(node.type)
      if (picked !== null) return this.#members(`interface ${name} {`, nodeOf(picked.symbol), picked.names)
      // The value that it is taken from is not there for a reader.
      if (/\btypeof\b/.test(node.type.getText())) return `type ${name} = ${this.#expand(symbol)}`
      this.#follow(node)
      return node.getText().replace(/^export /, '')
    }
    if (isInterfaceDeclaration(node)) {
      for (const clause of node.heritageClauses ?? []) this.#follow(clause)
      const head = node.getSourceFile().text.slice(node.getStart(), node.members.pos)
      return this.#members(head.replace(/^export /, '').replace(/\s+/g, ' '), node, names)
    }
    const isExported = this.#exported.get(name) === symbol
    return this.#members(isExported ? `class ${name}${toHeritage(node)} {` : `interface ${name} {`, node, names)
  }

  /** A type in full, for one that is computed from values. */
  #expand(symbol: TypeSymbol): string {
    const { checker } = this.#project
    const flags = TYPE_FLAGS | NodeBuilderFlags.InTypeAlias | NodeBuilderFlags.MultilineObjectLiterals
    const text = checker.typeToString(checker.getDeclaredTypeOfSymbol(symbol), undefined, flags)
    return text.replaceAll('    ', '  ').replaceAll(/;$/gm, '')
  }

  /** @param names - members to show; null for all */
  #members(head: string, node: Node, names: Set<string> | null): string {
    const all: readonly Member[] = isInterfaceDeclaration(node) || isClassDeclaration(node) ? node.members : []
    const shown = all.filter(member => {
      const name = isConstructorDeclaration(member) ? 'constructor' : toName(member)
      return !name.startsWith('#') && !toComment(member).includes('@internal') && (names === null || names.has(name))
    })
    const lines = shown.map(member => `  ${withoutSections(toComment(member))}${this.#member(member)}`)
    return lines.length === 0 ? `${head}}` : [head, ...lines, '}'].join('\n')
  }

  #member(member: Member): string {
    if (isConstructorDeclaration(member)) return `constructor(${this.#parameters(member.parameters)})`
    if (isMethodDeclaration(member)) return this.#signature(member.name.getText(), member)
    this.#follow(member)
    if (!isPropertyDeclaration(member) || member.type !== undefined) return member.getText()
    return `${member.name.getText()}: ${this.#typeOf(member)}`
  }

  #signature(name: string, node: SignatureDeclaration): string {
    const types = node.typeParameters?.map(type => type.getText()).join(', ')
    const generic = types === undefined ? '' : `<${types}>`
    if (node.type !== undefined) this.#follow(node.type)
    return `${name}${generic}(${this.#parameters(node.parameters)}): ${node.type?.getText() ?? 'void'}`
  }

  #parameters(parameters: readonly ParameterDeclaration[]): string {
    return parameters
      .map(one => {
        if (one.type !== undefined) this.#follow(one.type)
        const isOptional = one.questionToken !== undefined || one.initializer !== undefined
        const name = isIdentifier(one.name) ? one.name.getText() : 'options'
        return `${name}${isOptional ? '?' : ''}: ${one.type?.getText() ?? this.#typeOf(one)}`
      })
      .join(', ')
  }

  #typeOf(node: Node): string {
    const { checker } = this.#project
    return checker.typeToString(checker.getTypeAtLocation(node)!, undefined, TYPE_FLAGS)
  }

  /** Settings are computed from the table of options, which has their descriptions too. */
  #settings(symbol: TypeSymbol): string {
    const { checker } = this.#project
    const options: Readonly<Record<string, { description: string }>> = SETTING_OPTIONS
    const lines = checker.getPropertiesOfType(checker.getDeclaredTypeOfSymbol(symbol)).flatMap(property => {
      const text = options[property.name]?.description ?? property.getDocumentationComment(checker)
      const type = checker.typeToString(checker.getTypeOfSymbol(property)!, undefined, TYPE_FLAGS)
      return [`  /** ${text} */`, `  ${property.name}: ${type}`]
    })
    return ['interface Settings {', ...lines, '}'].join('\n')
  }

  /** Notes the types of this package that a node refers to. */
  #follow(node: Node): void {
    const picked = this.#readPick(node)
    if (picked !== null) {
      this.#reach(picked.symbol, picked.names)
      return
    }
    if (isIdentifier(node) && isTypeName(node)) {
      const symbol = this.#project.checker.getSymbolAtLocation(node)
      if (symbol !== undefined) this.#reach(this.#resolve(symbol), null)
    }
    node.forEachChild(child => this.#follow(child))
  }

  #reach(symbol: TypeSymbol, names: Set<string> | null): void {
    const { name } = symbol
    if ([...this.#exported.values()].includes(symbol)) return
    const node = symbol.declarations[0]?.resolve(this.#project)
    if (node === undefined || !node.getSourceFile().fileName.startsWith(LIB)) return
    if (!isInterfaceDeclaration(node) && !isClassDeclaration(node) && !isTypeAliasDeclaration(node)) return
    const known = this.#reached.get(name)
    if (known !== undefined && known.symbol !== symbol) throw new Error(`two types are named ${name}: rename one of them`)
    const isNew = known === undefined || (known.names !== null && (names === null || [...names].some(one => !known.names?.has(one))))
    if (!isNew) return
    // At the end of the map again.
    this.#reached.delete(name)
    this.#reached.set(name, { symbol, names: names === null ? null : new Set([...names, ...(known?.names ?? [])]) })
  }

  /** The type and the names of `Pick<Type, 'name' | ...>`; null for other nodes. */
  #readPick(node: Node): { symbol: TypeSymbol; names: Set<string> } | null {
    if (!isTypeReferenceNode(node) || node.typeName.getText() !== 'Pick') return null
    const [type, keys] = node.typeArguments as unknown as readonly [TypeNode, TypeNode]
    if (!isTypeReferenceNode(type)) return null
    const names = (isUnionTypeNode(keys) ? [...keys.types] : [keys]).map(key => {
      if (!isLiteralTypeNode(key) || !isStringLiteral(key.literal)) throw new Error(`${node.getText()}: names are expected`)
      return key.literal.text
    })
    return { symbol: this.#resolve(this.#project.checker.getSymbolAtLocation(type.typeName)!), names: new Set(names) }
  }

  #resolve(symbol: TypeSymbol): TypeSymbol {
    return (symbol.flags & SymbolFlags.Alias) === 0 ? symbol : this.#project.checker.getAliasedSymbol(symbol)
  }
}

function nodeOf(symbol: TypeSymbol): Node {
  return symbol.declarations[0]!.resolve()!
}

/** True for the name of a type, as opposed to that of a member or a parameter. */
function isTypeName({ parent }: Node): boolean {
  return isTypeReferenceNode(parent) || parent.parent === undefined || /^(extends|implements) /.test(parent.parent.getText())
}

function toHeritage(node: Node): string {
  return isClassDeclaration(node) ? (node.heritageClauses ?? []).map(clause => ` ${clause.getText()}`).join('') : ''
}

/** The comment before a member, with the line break and the indent behind it. */
function toComment(member: Node): string {
  const text = member.getSourceFile().text.slice(member.getStart(undefined, true), member.getStart())
  return text.startsWith('/**') ? text : ''
}

/** Sections are those of the source spec, which readers of the page do not have. */
function withoutSections(comment: string): string {
  return comment.replace(/ \(§[^)]*\)/g, '').replace(/, §[^)]*(?=\))/g, '')
}

/** A comment without the names of the pages that own it. */
function toProse(comment: string): string {
  return withoutSections(comment)
    .replace(/\s*(?:Owner|Spec): .*$/s, '')
    .replace(/\s+/g, ' ')
    .trim()
}

function toName(member: Member): string {
  const { name } = member as { name?: Node }
  return name?.getText() ?? ''
}
