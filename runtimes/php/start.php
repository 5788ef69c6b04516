<?php
/**
 * Before the daemon: what this PHP lacks is said in one line, and the process starts itself once more with what only a
 * start can set. Page: runtimes/php.
 */

declare(strict_types=1);

namespace Fngw;

const NEEDED_FUNCTIONS = ['pcntl_fork', 'pcntl_exec', 'posix_setpgid', 'stream_socket_server', 'json_encode'];

function checkPhp(): void
{
    if (\PHP_SAPI !== 'cli' || \PHP_VERSION_ID < 80000) {
        \fwrite(\STDERR, 'the php runtime needs PHP 8.0 or newer, command line; this is ' . \PHP_VERSION . ' ' . \PHP_SAPI . "\n");
        exit(1);
    }
    foreach (NEEDED_FUNCTIONS as $needed) {
        if (!\function_exists($needed)) {
            \fwrite(\STDERR, "the php runtime needs the function $needed: install or enable the extensions pcntl and posix\n");
            exit(1);
        }
    }
}

/**
 * Once more, as the same process: without PHP's own error_log (see error-log.php), and with a code cache, where the
 * machine's php.ini wants one, that looks at a file's time before it serves old code.
 *
 * @param list<string> $arguments of this process
 */
function startAgain(System $system, array $arguments): void
{
    $saved = \getenv('FNGW_PHP_STARTED');
    if ($saved === false) {
        // What this process inherited beside its standard streams ends with it: a worker must not have it.
        $system->closeOnExec();
        $saved = $system->saveStandard();
        \putenv("FNGW_PHP_STARTED=$saved");
        $disabled = \trim(\ini_get('disable_functions') . ',error_log', ',');
        // The code cache is memory that all workers share: none for functions that must not reach each other.
        $cache = \getenv('FNGW_ISOLATION') === 'user' ? ['-d', 'opcache.enable=0'] : [];
        \pcntl_exec(\PHP_BINARY, [
            '-d', "disable_functions=$disabled", '-d', 'opcache.revalidate_freq=0', '-d', 'memory_limit=-1', ...$cache, ...$arguments,
        ]);
    }
    $system->restoreStandard($saved);
}
