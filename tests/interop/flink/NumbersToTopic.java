import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Comparator;
import java.util.Optional;
import java.util.stream.Stream;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.util.ratelimit.RateLimiterStrategy;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.datagen.source.GeneratorFunction;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * Writes numbers to a topic, exactly once, in a cluster inside this process.
 *
 * Arguments: servers, directory of the checkpoints, how many numbers, naming of transactions.
 * It continues from the newest checkpoint in the directory, if there is one.
 */
public class NumbersToTopic {
    public static void main(String[] arguments) throws Exception {
        Path checkpoints = Paths.get(arguments[1]);
        Configuration configuration = new Configuration();
        configuration.setString("execution.checkpointing.dir", checkpoints.toUri().toString());
        configuration.setString("execution.checkpointing.storage", "filesystem");
        configuration.setString("execution.checkpointing.interval", "200ms");
        configuration.setString(
                "execution.checkpointing.externalized-checkpoint-retention",
                "RETAIN_ON_CANCELLATION");
        configuration.setString("restart-strategy.type", "fixed-delay");
        configuration.setString("restart-strategy.fixed-delay.attempts", "20");
        configuration.setString("restart-strategy.fixed-delay.delay", "500ms");
        configuration.setString("rest.bind-address", "127.0.0.1");
        configuration.setString("rest.bind-port", "0");
        Optional<Path> newest = newestCheckpoint(checkpoints);
        newest.ifPresent(path -> configuration.setString(
                "execution.state-recovery.path", path.toUri().toString()));
        System.out.println("continuing from " + newest);

        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.getExecutionEnvironment(configuration);
        environment.setParallelism(1);
        GeneratorFunction<Long, String> toText = number -> Long.toString(number);
        DataGeneratorSource<String> numbers = new DataGeneratorSource<>(
                toText,
                Long.parseLong(arguments[2]),
                RateLimiterStrategy.perSecond(500),
                Types.STRING);
        KafkaSink<String> sink = KafkaSink.<String>builder()
                .setBootstrapServers(arguments[0])
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix("numbers")
                .setTransactionNamingStrategy(TransactionNamingStrategy.valueOf(arguments[3]))
                // Flink's default of an hour is more than a broker allows.
                .setProperty("transaction.timeout.ms", "60000")
                .setRecordSerializer(KafkaRecordSerializationSchema.<String>builder()
                        .setTopic("numbers")
                        .setValueSerializationSchema(new SimpleStringSchema())
                        .build())
                .build();
        environment
                .fromSource(numbers, WatermarkStrategy.noWatermarks(), "numbers")
                .uid("numbers")
                .sinkTo(sink)
                .uid("sink");
        environment.execute("numbers");
    }

    /** A checkpoint is complete when it has its metadata. */
    private static Optional<Path> newestCheckpoint(Path checkpoints) throws Exception {
        if (!Files.isDirectory(checkpoints)) {
            return Optional.empty();
        }
        try (Stream<Path> found = Files.walk(checkpoints, 3)) {
            return found
                    .filter(path -> path.getFileName().toString().equals("_metadata"))
                    .max(Comparator.comparingLong(path -> path.toFile().lastModified()))
                    .map(Path::getParent);
        }
    }
}
