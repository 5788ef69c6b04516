<?php
/**
 * `error_log` for handlers. The daemon starts PHP without its own one, because that writes to descriptor 2, where a line
 * no longer tells which call it belongs to. Same signature, same kinds of destination. Page: runtimes/php.
 */

declare(strict_types=1);

if (!function_exists('error_log')) {
    function error_log(
        string $message,
        int $message_type = 0,
        ?string $destination = null,
        ?string $additional_headers = null,
    ): bool {
        switch ($message_type) {
            case 1:
                return mail((string) $destination, 'PHP error_log message', $message, $additional_headers ?? '');
            case 3:
                return file_put_contents((string) $destination, $message, FILE_APPEND) !== false;
            default:
                Fngw\Capture::$current?->write('stderr', $message . "\n");
                return true;
        }
    }
}
