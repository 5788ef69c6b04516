<?php
/**
 * Daemon: starts worker processes on request of a gateway and tells it their ends and output. Holds no user code, so it
 * never hangs. Pages: runtime/daemon, runtimes/php.
 *
 *   php daemon.php --socket <path | unix:path | tcp://host:port> --index <n> --root <functions root> [--standalone]
 *   FNGW_WORKER_MEMORY_MB=<n>  megabytes a worker may allocate; 0 or unset: no limit
 */

declare(strict_types=1);

namespace Fngw;

if (\PHP_SAPI !== 'cli' || \PHP_VERSION_ID < 80000) {
    \fwrite(\STDERR, 'the php runtime needs PHP 8.0 or newer, command line; this is ' . \PHP_VERSION . ' ' . \PHP_SAPI . "\n");
    exit(1);
}
foreach (['pcntl_fork', 'pcntl_exec', 'posix_setsid', 'stream_socket_server', 'json_encode'] as $needed) {
    if (!\function_exists($needed)) {
        \fwrite(\STDERR, "the php runtime needs the function $needed: install or enable the extensions pcntl and posix\n");
        exit(1);
    }
}

// Once more, as the same process, with what only a start can set: without PHP's own error_log (see error-log.php), and
// with a code cache, where the machine's php.ini wants one, that looks at a file's time before it serves old code.
require __DIR__ . '/system.php';
$system = new System();
$saved = \getenv('FNGW_PHP_STARTED');
if ($saved === false) {
    $saved = $system->saveStandard();
    \putenv("FNGW_PHP_STARTED=$saved");
    $disabled = \trim(\ini_get('disable_functions') . ',error_log', ',');
    \pcntl_exec(\PHP_BINARY, [
        '-d', "disable_functions=$disabled", '-d', 'opcache.revalidate_freq=0', '-d', 'memory_limit=-1', ...$argv,
    ]);
}
$system->restoreStandard($saved);

require __DIR__ . '/wire.php';
require __DIR__ . '/address.php';
require __DIR__ . '/process.php';
require __DIR__ . '/fork.php';
require __DIR__ . '/control.php';
require __DIR__ . '/supervisor.php';
// What a worker needs is loaded here, once, and shared by every fork.
require __DIR__ . '/capture.php';
require __DIR__ . '/error-log.php';
require __DIR__ . '/event.php';
require __DIR__ . '/envelope.php';
require __DIR__ . '/loader.php';
require __DIR__ . '/failure.php';
require __DIR__ . '/link.php';
require __DIR__ . '/stream.php';
require __DIR__ . '/worker.php';

/** @return Job|null null in the daemon, after its end */
function runDaemon(): ?Job
{
    $flags = \getopt('', ['socket:', 'index:', 'root:', 'standalone']);
    try {
        if (!\is_string($flags['socket'] ?? null)) {
            throw new \RuntimeException('--socket is missing: give a path, unix:<path> or tcp://<host>:<port>');
        }
        $address = Address::parse($flags['socket']);
        // Both names are in use among the daemons.
        $memory = \getenv('FNGW_WORKER_MEMORY_MB') ?: \getenv('FNGW_MEMORY_MB') ?: '0';
        if (\preg_match('/^\d{1,7}$/D', $memory) !== 1) {
            throw new \RuntimeException("FNGW_WORKER_MEMORY_MB must be a whole number of megabytes, got \"$memory\"");
        }
        return (new Daemon($address, isset($flags['standalone']), (int) $memory))->run();
    } catch (\RuntimeException $error) {
        \fwrite(\STDERR, $error->getMessage() . "\n");
        exit(1);
    }
}

unset($disabled, $needed, $saved, $system);
if (Worker::begin(runDaemon())) {
    // Included here and not in a function: the variables of a handler file's top level are globals.
    try {
        Worker::$returned = include Worker::$entry;
    } catch (\Throwable $failure) {
        Worker::$failure = $failure;
        unset($failure);
    }
    Worker::serve();
}
