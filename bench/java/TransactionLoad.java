import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.atomic.AtomicLong;

import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Transactions of Kafka's own producer, one after the other in each of several producers.
 *
 * Arguments: servers topic id-prefix producers records value-size warm-up-seconds seconds.
 * Prints: transactions, seconds, processor seconds of this process.
 */
public class TransactionLoad {
    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0];
        String topic = arguments[1];
        int producers = Integer.parseInt(arguments[3]);
        int records = Integer.parseInt(arguments[4]);
        int size = Integer.parseInt(arguments[5]);
        double warmUpSeconds = Double.parseDouble(arguments[6]);
        double seconds = Double.parseDouble(arguments[7]);

        AtomicLong committed = new AtomicLong();
        CyclicBarrier ready = new CyclicBarrier(producers + 1);
        CountDownLatch ended = new CountDownLatch(producers);
        List<Throwable> failures = new ArrayList<>();
        Deadline deadline = new Deadline();
        for (int number = 0; number < producers; number++) {
            int partition = number;
            Thread thread = new Thread(() -> {
                try (KafkaProducer<byte[], byte[]> producer =
                        new KafkaProducer<>(settings(servers, arguments[2] + partition))) {
                    byte[] value = new byte[size];
                    new Random(partition).nextBytes(value);
                    producer.initTransactions();
                    ready.await();
                    while (System.nanoTime() < deadline.atNanos) {
                        producer.beginTransaction();
                        for (int sent = 0; sent < records; sent++) {
                            producer.send(new ProducerRecord<>(topic, partition, null, value));
                        }
                        // Kafka's producer looks for unsent batches before it takes its lock. So
                        // without this it may, once in ten thousand transactions on a busy core,
                        // ask for the end before it has sent the records.
                        producer.flush();
                        producer.commitTransaction();
                        committed.incrementAndGet();
                    }
                } catch (Throwable failure) {
                    synchronized (failures) {
                        failures.add(failure);
                    }
                    ready.reset();
                } finally {
                    ended.countDown();
                }
            });
            thread.setDaemon(true);
            thread.start();
        }
        deadline.atNanos = Long.MAX_VALUE;
        ready.await();
        Thread.sleep((long) (warmUpSeconds * 1000));
        long count = committed.get();
        long started = System.nanoTime();
        long cpu = cpuNanos();
        Thread.sleep((long) (seconds * 1000));
        count = committed.get() - count;
        double taken = (System.nanoTime() - started) / 1e9;
        double used = (cpuNanos() - cpu) / 1e9;
        deadline.atNanos = 0;
        ended.await();
        synchronized (failures) {
            if (!failures.isEmpty()) {
                failures.get(0).printStackTrace();
                System.exit(1);
            }
        }
        System.out.printf(java.util.Locale.ROOT, "%d %.6f %.6f%n", count, taken, used);
    }

    private static final class Deadline {
        volatile long atNanos;
    }

    private static Properties settings(String servers, String id) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("transactional.id", id);
        settings.put("acks", "all");
        settings.put("linger.ms", "0");
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        return settings;
    }

    private static long cpuNanos() {
        return ((com.sun.management.OperatingSystemMXBean)
                        ManagementFactory.getOperatingSystemMXBean())
                .getProcessCpuTime();
    }
}
