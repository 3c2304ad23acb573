//go:build unix

package measure

import (
	"syscall"
	"time"
)

// CPUTime is the processor time that this process has used so far.
func CPUTime() (user, system time.Duration) {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		return 0, 0
	}
	return time.Duration(ru.Utime.Nano()), time.Duration(ru.Stime.Nano())
}
