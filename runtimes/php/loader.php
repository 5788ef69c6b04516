<?php
/** The handler file as something that can be called. Pages: discovery/callable, runtimes/php. */

declare(strict_types=1);

namespace Fngw;

/** The function cannot be loaded: what is wrong, where, and how to mend it. */
final class LoadError extends \RuntimeException
{
    public string $hint;

    public function __construct(string $message, string $file, int $line = 0, string $hint = '')
    {
        parent::__construct($message);
        $this->file = $file;
        $this->line = $line;
        $this->hint = $hint;
    }
}

final class Loader
{
    /** Names of the environment that a handler gets beside its function's own values. */
    private const INHERITED = '/^(PATH|HOME|USER|LOGNAME|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|TMP|TEMP|SSL_CERT_FILE|SSL_CERT_DIR)$/D';

    /** Full path of the handler file. */
    public string $entry;
    /** True when the callable declares more than one parameter: it then gets the route parameters as the second. */
    public bool $takesParams = false;
    private string $dir;
    private Sources $sources;
    /** @var list<string> symbols to look for, first found wins */
    private array $names;

    /** @param array<string, mixed> $start header of the worker's `start` frame */
    public function __construct(array $start, Sources $sources)
    {
        $this->entry = (string) ($start['entry'] ?? '');
        $this->dir = (string) ($start['dir'] ?? \dirname($this->entry));
        if (!\str_starts_with($this->entry, '/')) {
            $this->entry = $this->dir . '/' . $this->entry;
        }
        $this->sources = $sources;
        $this->names = $start['callable']['names'];
        $adapter = $start['adapter'] ?? 'native';
        if ($adapter !== 'native') {
            throw new LoadError(
                "invoke.adapter \"$adapter\" is not available in php",
                $this->entry,
                0,
                'remove invoke.adapter or set it to "native"',
            );
        }
    }

    /**
     * Everything before the handler file itself: working directory, environment, Composer's autoloader.
     *
     * @param array<string, mixed> $env
     */
    public function prepare(array $env): void
    {
        if (!@\chdir($this->dir)) {
            throw new LoadError("the function's folder cannot be entered: {$this->dir}", $this->entry);
        }
        if (!\is_file($this->entry) || !\is_readable($this->entry)) {
            throw new LoadError('the handler file is missing or cannot be read', $this->entry);
        }
        self::setEnvironment($env, $this->entry);
        $autoload = $this->dir . '/vendor/autoload.php';
        if (\is_file($autoload)) {
            require_once $autoload;
        }
    }

    /**
     * @param mixed $returned what the handler file returned
     * @throws LoadError
     */
    public function findCallable(mixed $returned): \Closure
    {
        $function = $this->findFunction();
        if ($function === null && \in_array('handler', $this->names, true)) {
            if ($returned instanceof \Closure) {
                $function = new \ReflectionFunction($returned);
            } elseif (\is_object($returned) && \is_callable($returned)) {
                $returned = \Closure::fromCallable($returned);
                $function = new \ReflectionFunction($returned);
            }
        }
        if ($function === null) {
            throw $this->toMissing();
        }
        if ($function->getNumberOfRequiredParameters() > 2) {
            throw new LoadError(
                "{$this->names[0]}() requires {$function->getNumberOfRequiredParameters()} parameters, but is called with two",
                (string) $function->getFileName(),
                (int) $function->getStartLine(),
                "declare it as {$this->names[0]}(array \$event) or {$this->names[0]}(array \$event, array \$params)",
            );
        }
        $this->takesParams = $function->getNumberOfParameters() > 1;
        return $function->isClosure() ? $returned : \Closure::fromCallable($function->getName());
    }

    private function findFunction(): ?\ReflectionFunction
    {
        foreach ($this->names as $name) {
            $function = $this->findNamed($name);
            if ($function !== null) {
                return $function;
            }
        }
        return null;
    }

    /** The function in the global namespace, else in one of the file's own. */
    private function findNamed(string $wanted): ?\ReflectionFunction
    {
        if (\function_exists($wanted)) {
            $function = new \ReflectionFunction($wanted);
            if ($this->isOfUser($function)) {
                return $function;
            }
        }
        $found = null;
        $ending = '\\' . \strtolower($wanted);
        foreach (\get_defined_functions()['user'] as $name) {
            if (!\str_ends_with($name, $ending)) {
                continue;
            }
            $function = new \ReflectionFunction($name);
            if ($function->getFileName() === $this->entry) {
                return $function;
            }
            if ($this->isOfUser($function)) {
                $found ??= $function;
            }
        }
        return $found;
    }

    /** False for PHP's own functions, this runtime's and those of packages. */
    private function isOfUser(\ReflectionFunction $function): bool
    {
        $file = $function->getFileName();
        return $file !== false && $this->sources->isUsers($file);
    }

    private function toMissing(): LoadError
    {
        $names = [];
        foreach (\get_defined_functions()['user'] as $name) {
            $function = new \ReflectionFunction($name);
            if ($function->getFileName() === $this->entry) {
                $names[] = $function->getName();
            }
        }
        $list = $names === [] ? 'none' : \implode(', ', \array_slice($names, 0, 10));
        return new LoadError(
            "{$this->sources->shorten($this->entry)} has no function \"{$this->names[0]}\" (it defines $list)",
            $this->entry,
            0,
            "define function {$this->names[0]}(array \$event), or name another function in invoke.handler",
        );
    }

    /** @param array<string, mixed> $env */
    private static function setEnvironment(array $env, string $entry): void
    {
        foreach (\array_keys(\getenv()) as $name) {
            // The rest of the gateway's own environment is none of the handler's business: it may hold tokens.
            if (\preg_match(self::INHERITED, (string) $name) !== 1) {
                \putenv((string) $name);
            }
        }
        foreach ($env as $name => $value) {
            $name = (string) $name;
            if (\is_scalar($value) && \preg_match('/^[^=\0]+$/D', $name) === 1 && !\str_contains((string) $value, "\0")) {
                \putenv($name . '=' . (\is_bool($value) ? ($value ? 'true' : 'false') : $value));
            }
        }
        $_ENV = \getenv();
        $now = \microtime(true);
        $script = ['SCRIPT_FILENAME' => $entry, 'SCRIPT_NAME' => $entry, 'PHP_SELF' => $entry];
        $_SERVER = $_ENV + $script + ['REQUEST_TIME' => (int) $now, 'REQUEST_TIME_FLOAT' => $now];
        unset($GLOBALS['argv'], $GLOBALS['argc']);
    }
}
