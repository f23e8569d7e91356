# A kernel that keeps its memory from all programs: the agent says that there is no fast path.
# kernel: lockdown=confidentiality
set -e
mount -t securityfs security /sys/kernel/security
grep -F '[confidentiality]' /sys/kernel/security/lockdown
case $(uname -r) in
5.* | 6.[0-5].*) ;;
*) /project/target/release/deps/overlay fast_path::lacks::a_kernel_that_is_locked_down ;;
esac
