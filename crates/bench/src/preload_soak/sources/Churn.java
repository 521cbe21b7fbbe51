/** Garbage of many sizes and ages; whatever is still held must be what was put there. */
final class Churn {
    private static final int KEPT = 2_000;
    private static final int STEPS = 800_000;

    private long state = 42;

    private int below(int bound) {
        state = state * 6364136223846793005L + 1442695040888963407L;
        return (int) Long.remainderUnsigned(state >>> 33, bound);
    }

    private static byte mark(int step) {
        return (byte) (step * 31 + 7);
    }

    public static void main(String[] words) throws InterruptedException {
        long[] sums = new long[2];
        Thread[] threads = new Thread[sums.length];
        for (int at = 0; at < threads.length; at++) {
            int own = at;
            threads[at] = new Thread(() -> {
                Churn churn = new Churn();
                churn.state += own;
                sums[own] = churn.run();
            });
            threads[at].start();
        }
        long sum = 0;
        for (int at = 0; at < threads.length; at++) {
            threads[at].join();
            if (sums[at] == 0) {
                System.out.println("a thread found something else than it had put there");
                System.exit(1);
            }
            sum = sum * 31 + sums[at];
        }
        System.out.println("ok " + sum);
    }

    /** A checksum; 0 where something is not what was put there. */
    private long run() {
        byte[][] kept = new byte[KEPT][];
        int[] since = new int[KEPT];
        long sum = 1;
        for (int step = 0; step < STEPS; step++) {
            int slot = below(KEPT);
            byte[] old = kept[slot];
            if (old != null) {
                byte wanted = mark(since[slot]);
                if (old[0] != wanted || old[old.length - 1] != wanted) {
                    return 0;
                }
                sum = sum * 1_000_003 + old.length;
            }
            // Mostly small; one in a thousand is a humongous object of its own regions.
            int length = 1 + (below(1_000) == 0 ? below(1 << 20) : below(8_000));
            byte[] fresh = new byte[length];
            for (int at = 0; at < length; at += 512) {
                if (fresh[at] != 0) {
                    return 0;
                }
            }
            fresh[0] = mark(step);
            fresh[length - 1] = mark(step);
            kept[slot] = fresh;
            since[slot] = step;
        }
        return sum == 0 ? 1 : sum;
    }
}
